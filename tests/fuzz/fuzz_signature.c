/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_signature.c: any text as the signature of a foreign function. A libFuzzer target. The first byte chooses what
 * the function is for and the real type. What is refused says at which byte of the text; what is taken has arguments
 * within bounds, and its expressions have values.
 */
#include <stdlib.h>
#include <string.h>

#include "host/foreign/signature.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        abort();
}

static void look(const tn_signature *s, int32_t purpose)
{
    const double position[TN_POSITION_COUNT] = {7, 100, 0.07, 1e-3, 0.5, 448, 448, 64, 14};
    int given = 0;
    require(s->count >= 0 && s->count <= TN_ARGUMENTS_MOST);
    for (int32_t i = 0; i < s->count; i++) {
        const tn_argument *a = &s->argument[i];
        require(a->type > TN_NUMBER_VOID && a->type <= TN_NUMBER_U64 && strlen(a->name) < TN_WORD_MAX);
        require(a->value.count >= 0 && a->value.count <= TN_EXPRESSION_MOST);
        require(a->value.count > 0 || purpose == TN_FOR_ELEMENTS);
        given += a->give != TN_GIVE_VALUE;
        float out[TN_EXPRESSION_RUN];
        if (a->value.count)
            (void)tn_expression_value(&a->value, position);
        if (a->value.count && !a->value.is_used)
            tn_expression_f32(&a->value, TN_EXPRESSION_RUN, NULL, out);
    }
    require(purpose == TN_FOR_SCHEDULE ? given == 0 : given >= 1);
    require(purpose == TN_FOR_SCHEDULE || (s->y >= 0) == (s->result == TN_NUMBER_VOID));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    int32_t purpose = data[0] & 1 ? TN_FOR_SCHEDULE : TN_FOR_ELEMENTS;
    char *text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    tn_signature signature;
    tn_error err = {0};
    size_t fault = SIZE_MAX;
    int32_t status = tn_signature_parse(text, purpose, data[0] & 2 ? 64 : 32, &signature, &fault, &err);
    if (status == TN_OK)
        look(&signature, purpose);
    else
        require(status == TN_E_INVALID && fault <= strlen(text) && err.msg[0]);
    free(text);
    return 0;
}
