#!/usr/bin/env python3
"""Files that are no plugins, or plugins with one thing damaged, from a good one: damage.py GOOD LIBC_USER FOLDER

LIBC_USER is a plugin that needs libc.so.6. Layouts: ELF64, as in elf.h; only little-endian files are read.
"""
import random
import struct
import sys

GOOD, USER, FOLDER = sys.argv[1:]
good = open(GOOD, "rb").read()
user = open(USER, "rb").read()
PT_NULL, PT_NOTE = 0, 4


def put(name, data):
    with open(f"{FOLDER}/{name}.so", "wb") as f:
        f.write(data)


def with_bytes(at, new):
    return good[:at] + new + good[at + len(new):]


def segments():
    at, count = struct.unpack_from("<Q", good, 32)[0], struct.unpack_from("<H", good, 56)[0]
    return [(at + 56 * i, struct.unpack_from("<II6Q", good, at + 56 * i)) for i in range(count)]


note_at, note = next((at, s) for at, s in segments() if s[0] == PT_NOTE)
tenon_note = good.index(b"\0\0\0TENON\0", note[2]) + 3 - 12

put("empty", b"")
put("text", b"#!/bin/sh\necho this is no library\n")
put("random", random.Random(4).randbytes(20000))
put("phnum-huge", with_bytes(56, b"\xff\xff"))
put("note-overflow", with_bytes(tenon_note + 4, b"\xfc\xff\xff\xff"))
put("note-owner-overflow", with_bytes(tenon_note, b"\xfc\xff\xff\xff"))
put("for-aarch64", with_bytes(18, struct.pack("<H", 183 if good[18] != 183 else 62)))
put("for-32-bit", with_bytes(4, b"\x01"))
put("for-big-endian", with_bytes(5, b"\x02"))
put("for-fixed-address", with_bytes(16, struct.pack("<H", 2)))
put("note-moved", b"".join([good[:note_at], struct.pack("<I", PT_NULL), good[note_at + 4:]]))
put("needed-missing", user.replace(b"\0libc.so.6\0", b"\0libx.so.6\0"))
put("cut", good[:4096])
