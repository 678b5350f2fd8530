/* Prints what stands at a path (`a.0.b`) in the JSON on its standard input; or that input, quoted. */
#include <stdio.h>

#include "toolgate_json.h"

static tg_json follow(tg_json value, char *path) {
    for (char *step = strtok(path, "."); step != NULL; step = strtok(NULL, ".")) {
        value = *step >= '0' && *step <= '9' ? tg_json_item(value, (uint32_t)atoi(step)) : tg_json_get(value, step);
    }
    return value;
}

int main(int argc, char **argv) {
    char input[4096];
    tg_text given = {0}, out = {0};
    size_t length = fread(input, 1, sizeof input, stdin);
    tg_append_bytes(&given, input, (uint32_t)length);
    if (argc < 2) return 2;
    if (strcmp(argv[1], "quote") == 0) {
        tg_append_quoted(&out, given.data);
        tg_append(&out, " ");
        tg_append_int(&out, 0);
        tg_append(&out, " ");
        tg_append_int(&out, INT64_MIN);
    } else if (strcmp(argv[1], "words") == 0) {
        if (!tg_json_words(tg_json_of(&given), &out)) tg_append(&out, "nothing");
    } else {
        tg_json found = follow(tg_json_of(&given), argv[1]);
        tg_text words = {0};
        if (found.length == 0) {
            tg_append(&out, "nothing");
        } else if (tg_json_string(found, &words)) {
            tg_append(&out, "text ");
            tg_append(&out, words.data);
        } else {
            tg_append_int(&out, tg_json_int(found));
        }
    }
    fputs(out.data, stdout);
    return 0;
}
