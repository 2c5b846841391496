/* SPDX-License-Identifier: Apache-2.0
 *
 * note.c: the TENON notes of an ELF file.
 */
#include "host/plugin/note.h"

#include <inttypes.h>
#include <string.h>
#if defined __x86_64__
#include <cpuid.h>
#endif

#include "host/base/memory.h"
#include "host/base/text.h"
#include "host/base/utf8.h"
#include "host/plugin/interface.h"

#define WALKED_MAX 1024 /* notes of any owner in one file */

static int32_t no_memory(const char *name, tn_error *err)
{
    return tn_error_set(err, TN_E_MEMORY, "%s: out of memory while its notes were read", name);
}

/* ---- instruction sets ---- */

static const struct {
    uint32_t bit;
    const char *name;
} isa_names[] = {{TN_ISA_SSE42, "SSE4.2"}, {TN_ISA_AVX, "AVX"},   {TN_ISA_AVX2, "AVX2"},
                 {TN_ISA_FMA, "FMA"},      {TN_ISA_F16C, "F16C"}, {TN_ISA_AVX512, "AVX-512 (F, BW, DQ, VL)"}};

static uint32_t isa_here(void)
{
    uint32_t have = 0;
#if defined __x86_64__
    unsigned a, b, c = 0, d;
    __builtin_cpu_init();
    have |= __builtin_cpu_supports("sse4.2") ? TN_ISA_SSE42 : 0;
    have |= __builtin_cpu_supports("avx") ? TN_ISA_AVX : 0;
    have |= __builtin_cpu_supports("avx2") ? TN_ISA_AVX2 : 0;
    have |= __builtin_cpu_supports("fma") ? TN_ISA_FMA : 0;
    /* not every compiler knows "f16c"; its registers are AVX's */
    have |= (have & TN_ISA_AVX) && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) ? TN_ISA_F16C : 0;
    have |= __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                ? TN_ISA_AVX512
                : 0;
#endif
    return have;
}

uint32_t tn_isa_missing(uint32_t needed) { return needed ? needed & ~isa_here() : 0; }

static int32_t refuse_isa(const char *name, uint32_t missing, tn_error *err)
{
    tn_text list = {0};
    uint32_t unknown = missing;
    for (size_t i = 0; i < sizeof isa_names / sizeof *isa_names; i++) {
        if (missing & isa_names[i].bit)
            tn_text_addf(&list, "%s%s", list.size ? ", " : "", isa_names[i].name);
        unknown &= ~isa_names[i].bit;
    }
    if (unknown)
        tn_text_addf(&list, "%s0x%" PRIx32 " (unknown to this host)", list.size ? ", " : "", unknown);
    int32_t status =
        tn_error_set(err, TN_E_PLUGIN,
                     "WRONG_ISA: %s: needs instruction sets that this processor lacks: %s; build it for an "
                     "older one, without -march=native",
                     name, tn_text_string(&list));
    tn_text_free(&list);
    return status;
}

/* ---- heads ---- */

/* ASCII's control characters and U+0080 to U+009F. */
static int is_control(const unsigned char *s) { return s[0] < 0x20 || s[0] == 0x7F || (s[0] == 0xC2 && s[1] < 0xA0); }

int tn_note_printable(const char *text)
{
    while (*text) {
        size_t length = tn_utf8_length(text, SIZE_MAX);
        if (!length || is_control((const unsigned char *)text))
            return 0;
        text += length;
    }
    return 1;
}

int tn_note_word(const char *text)
{
    return text[0] != 0 && text[0] != '-' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == strlen(text);
}

static const char *bad_text(const tn_note_item *item)
{
    const tn_note *h = &item->head;
    int plugin = item->type == TN_NOTE_PLUGIN;
/* clang-format off */
#define FIELD(field, word) {#field, h->field, sizeof h->field, word}
    /* clang-format on */
    const struct {
        const char *name, *text;
        size_t size;
        int word; /* must be a word */
    } fields[] = {FIELD(plugin, plugin),  FIELD(version, plugin), FIELD(kind, !plugin), FIELD(name, !plugin),
                  FIELD(device, !plugin), FIELD(interface, 0),    FIELD(summary, 0)};
#undef FIELD
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!memchr(fields[i].text, 0, fields[i].size) || !tn_note_printable(fields[i].text) ||
            (fields[i].word && !tn_note_word(fields[i].text)))
            return fields[i].name;
    }
    return plugin || h->interface[0] ? NULL : "interface";
}

static int32_t check_layout(const char *name, const tn_note_item *item, tn_error *err)
{
    const tn_note *h = &item->head;
    if (h->format != TN_NOTE_FORMAT)
        return tn_error_set(err, TN_E_PLUGIN,
                            "NOTE_FORMAT: %s: note format %" PRIu32 ", this host reads %u; upgrade %s", name, h->format,
                            TN_NOTE_FORMAT, h->format > TN_NOTE_FORMAT ? "tenon" : "the plugin");
    if (h->size != item->size || h->text_at < sizeof *h || h->text_at >= h->size)
        return tn_error_set(err, TN_E_PLUGIN,
                            "NOTE_INVALID: %s: a note of %" PRIu32 " bytes says %" PRIu32 " with its text at %" PRIu32
                            ", needed at least %zu and less than the size",
                            name, item->size, h->size, h->text_at, sizeof *h);
    const char *field = bad_text(item);
    if (field)
        return tn_error_set(err, TN_E_PLUGIN,
                            "NOTE_INVALID: %s: the field %s of a note is empty, not ended by NUL or not printable text",
                            name, field);
    if (h->real != 0 && h->real != 32 && h->real != 64)
        return tn_error_set(err, TN_E_PLUGIN, "NOTE_INVALID: %s: real type %" PRIu32 ", needed 0, 32 or 64", name,
                            h->real);
    return TN_OK;
}

static int32_t check_versions(const char *name, const tn_note *h, tn_error *err)
{
    if (h->abi_major != TN_ABI_MAJOR)
        return tn_error_set(err, TN_E_PLUGIN, "ABI_MAJOR: %s: needs ABI %" PRIu32 ", host %u, %s", name, h->abi_major,
                            TN_ABI_MAJOR,
                            h->abi_major > TN_ABI_MAJOR ? "upgrade tenon" : "rebuild the plugin with the new headers");
    if (h->abi_minor > TN_ABI_MINOR)
        return tn_error_set(err, TN_E_PLUGIN, "ABI_MINOR: %s: needs ABI %u.%" PRIu32 ", host %u.%u, upgrade tenon",
                            name, TN_ABI_MAJOR, h->abi_minor, TN_ABI_MAJOR, TN_ABI_MINOR);
    uint32_t missing = tn_isa_missing(h->isa);
    if (missing)
        return refuse_isa(name, missing, err);
    return h->kind[0] ? tn_interface_check(name, h->kind, h->interface, err) : TN_OK;
}

/* Reads and checks the head of an item whose type, size and place are known. */
static int32_t read_head(const tn_elf *elf, tn_note_item *item, tn_error *err)
{
    const char *name = elf->source->name;
    if (item->size <= sizeof item->head || item->size > TN_NOTE_MAX)
        return tn_error_set(err, TN_E_PLUGIN, "NOTE_INVALID: %s: a note of %" PRIu32 " bytes, needed %zu to %u", name,
                            item->size, sizeof item->head + 1, TN_NOTE_MAX);
    if (tn_elf_read(elf, item->at, &item->head, sizeof item->head))
        return tn_error_set(err, TN_E_IO, "EIO: %s: reading failed; did the file shrink?", name);
    int32_t status = check_layout(name, item, err);
    if (status) {
        memset(&item->head, 0, sizeof item->head);
        return status;
    }
    for (char *c = item->head.name; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return check_versions(name, &item->head, err);
}

/* ---- walking ---- */

static tn_note_item *new_item(tn_notes *notes)
{
    if (tn_grow(&notes->items, &notes->capacity, notes->count, sizeof *notes->items))
        return NULL;
    tn_note_item *item = &notes->items[notes->count];
    memset(item, 0, sizeof *item);
    return item;
}

static int32_t add_note(const tn_elf *elf, const Elf64_Nhdr *note, uint64_t at, tn_notes *notes, tn_error *err)
{
    if (notes->count == TN_NOTES_MAX)
        return tn_error_set(err, TN_E_PLUGIN, "NOTE_INVALID: %s: more than %d notes; split the plugin",
                            elf->source->name, TN_NOTES_MAX);
    tn_note_item *item = new_item(notes);
    if (!item)
        return no_memory(elf->source->name, err);
    item->type = note->n_type;
    item->size = note->n_descsz;
    item->at = at;
    tn_error why;
    item->status = read_head(elf, item, &why);
    if (item->status && !(item->reason = tn_strdup(why.msg)))
        return no_memory(elf->source->name, err);
    notes->count++;
    return TN_OK;
}

/* Types that this host does not know are left alone, as ELF wants. */
static int is_ours(const tn_elf *elf, const Elf64_Nhdr *note, uint64_t at)
{
    char owner[sizeof TN_NOTE_OWNER];
    return (note->n_type == TN_NOTE_PLUGIN || note->n_type == TN_NOTE_COMPONENT) && note->n_namesz == sizeof owner &&
           tn_elf_read(elf, at, owner, sizeof owner) == TN_OK && memcmp(owner, TN_NOTE_OWNER, sizeof owner) == 0;
}

/* Notes in [at, at + size), which lies in the file. Names and descriptors are padded to 4 bytes, also where the segment
 * is aligned to 8: there only GNU's notes stand, whose sizes fit both. */
static int32_t walk(const tn_elf *elf, uint64_t at, uint64_t size, unsigned *walked, tn_notes *notes, tn_error *err)
{
    const char *name = elf->source->name;
    uint64_t end = at + size;
    Elf64_Nhdr note;
    while (end - at >= sizeof note) {
        if (++*walked > WALKED_MAX)
            return tn_error_set(err, TN_E_PLUGIN, "ELF_CORRUPT: %s: more than %d notes", name, WALKED_MAX);
        if (tn_elf_read(elf, at, &note, sizeof note))
            return tn_error_set(err, TN_E_IO, "EIO: %s: reading failed; did the file shrink?", name);
        uint64_t owner_bytes = ((uint64_t)note.n_namesz + 3) & ~(uint64_t)3;
        uint64_t bytes = ((uint64_t)note.n_descsz + 3) & ~(uint64_t)3;
        uint64_t left = end - at - sizeof note;
        if (owner_bytes > left || note.n_descsz > left - owner_bytes)
            return tn_error_set(err, TN_E_PLUGIN,
                                "ELF_CORRUPT: %s: the note at %" PRIu64 " claims %" PRIu32 " + %" PRIu32
                                " bytes, %" PRIu64 " are left",
                                name, at, note.n_namesz, note.n_descsz, left);
        if (is_ours(elf, &note, at + sizeof note)) {
            int32_t status = add_note(elf, &note, at + sizeof note + owner_bytes, notes, err);
            if (status)
                return status;
        }
        at += sizeof note + owner_bytes + (bytes < left - owner_bytes ? bytes : left - owner_bytes);
    }
    return TN_OK;
}

static int32_t walk_all(const tn_elf *elf, tn_notes *notes, tn_error *err)
{
    int32_t status = TN_OK;
    unsigned walked = 0;
    for (unsigned i = 0; i < elf->header.e_phnum && !status; i++) {
        const Elf64_Phdr *s = &elf->segments[i];
        if (s->p_type == PT_NOTE)
            status = walk(elf, s->p_offset, s->p_filesz, &walked, notes, err);
    }
    Elf64_Shdr section;
    if (notes->count == 0 && status != TN_E_IO && status != TN_E_MEMORY &&
        tn_elf_section(elf, ".note.tenon", &section) == TN_OK) {
        walked = 0;
        status = walk(elf, section.sh_offset, section.sh_size, &walked, notes, err);
    }
    return status;
}

int32_t tn_notes_read(const tn_elf *elf, tn_notes *ret, tn_error *err)
{
    tn_notes notes = {0};
    int32_t status = walk_all(elf, &notes, err);
    if (!status && notes.count > 0 && !tn_notes_plugin(&notes))
        status = tn_error_set(err, TN_E_PLUGIN, "NOTE_INVALID: %s: needed exactly one plugin note; see TN_PLUGIN",
                              elf->source->name);
    if (status) {
        tn_notes_free(&notes);
        return status;
    }
    *ret = notes;
    return TN_OK;
}

void tn_notes_free(tn_notes *notes)
{
    for (size_t i = 0; i < notes->count; i++)
        tn_free(notes->items[i].reason);
    tn_free(notes->items);
    memset(notes, 0, sizeof *notes);
}

const tn_note_item *tn_notes_plugin(const tn_notes *notes)
{
    const tn_note_item *found = NULL;
    for (size_t i = 0; i < notes->count; i++) {
        if (notes->items[i].type != TN_NOTE_PLUGIN)
            continue;
        if (found)
            return NULL;
        found = &notes->items[i];
    }
    return found;
}

int32_t tn_note_bytes(const tn_source *source, const tn_note_item *item, tn_note **ret, tn_error *err)
{
    char *bytes = tn_alloc(item->size, 1);
    if (!bytes)
        return no_memory(source->name, err);
    int32_t status = tn_source_read(source, item->at, bytes, item->size);
    if (status)
        status = tn_error_set(err, TN_E_IO, "EIO: %s: reading a note failed; did the file shrink?", source->name);
    else if (((const tn_note *)(const void *)bytes)->text_at != item->head.text_at) /* checked when the head was read */
        status = tn_error_set(err, TN_E_PLUGIN, "STALE: %s: was changed while it was read; start again", source->name);
    else if (bytes[item->size - 1] != 0)
        status =
            tn_error_set(err, TN_E_PLUGIN, "NOTE_INVALID: %s: the text of a note does not end in NUL", source->name);
    else
        *ret = (tn_note *)(void *)bytes;
    if (status)
        tn_free(bytes);
    return status;
}
