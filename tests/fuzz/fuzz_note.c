/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_note.c: the ELF gate, the note reader and the parser of notes on any bytes. A libFuzzer target:
 *   clang -fsanitize=fuzzer,address,undefined ... fuzz_note.c host/plugin/{elf,note,info,interface}.c host/base/...
 */
#include "host/base/memory.h"
#include "host/plugin/info.h"
#include "host/plugin/note.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse_components(const tn_source *source, const tn_notes *notes, const tn_note *plugin)
{
    for (size_t i = 0; i < notes->count; i++) {
        tn_note *component = NULL;
        tn_component_info *info = NULL;
        if (notes->items[i].type == TN_NOTE_COMPONENT && notes->items[i].status == TN_OK &&
            tn_note_bytes(source, &notes->items[i], &component, NULL) == TN_OK)
            (void)tn_info_parse("fuzz", plugin, component, &info, NULL);
        tn_info_free(info);
        tn_free(component);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tn_source source = tn_source_memory("fuzz", data, size);
    tn_elf elf;
    tn_notes notes = {0};
    tn_note *plugin = NULL;
    if (tn_elf_open(&source, &elf, NULL) || tn_notes_read(&elf, &notes, NULL))
        return 0;
    const tn_note_item *item = tn_notes_plugin(&notes);
    if (item && item->status == TN_OK && tn_note_bytes(&source, item, &plugin, NULL) == TN_OK)
        parse_components(&source, &notes, plugin);
    tn_free(plugin);
    tn_notes_free(&notes);
    return 0;
}
