/* A chat in which the model calls a function of this guest.
 *
 * Arguments: the model. Standard input: the question. Standard output: the answer. */
#include <stdio.h>

#include "toolgate.h"
#include "toolgate_json.h"

static const char ADD[] =
    "{\"type\":\"function\",\"function\":{\"name\":\"add\",\"description\":\"Add two whole numbers.\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"}},"
    "\"required\":[\"a\",\"b\"]}}}";

/* Where the host puts the arguments of `add`, and `add` its result. */
static char arena[65536];

static int32_t add(const char *arguments, uint32_t length, char *out, uint32_t *out_length) {
    tg_json given = tg_json_of_bytes(arguments, length);
    int64_t a = tg_json_int(tg_json_get(given, "a")), b = tg_json_int(tg_json_get(given, "b"));
    tg_text sum = {0};
    tg_append(&sum, "{\"sum\":");
    tg_append_int(&sum, a + b);
    tg_append(&sum, "}");
    tg_log(TG_LOG_INFO, sum.data);
    int32_t result = tg_hand_over(&sum, out, out_length);
    tg_free(&sum);
    return result;
}

int main(int argc, char **argv) {
    char question[4096];
    if (argc < 2 || fgets(question, sizeof question, stdin) == NULL) {
        fputs("give a model as argument, and a question as input\n", stderr);
        return 2;
    }

    int32_t chat = cchat_create();
    tg_set_string(chat, "model", argv[1]);
    tg_set_arena(chat, arena, sizeof arena);
    tg_offer(chat, add, ADD);
    tg_say(chat, "user", question);

    /* The model asks for `add`, the host calls it here, and asks the model again, until it answers. */
    int32_t response = cchat_send(chat, TG_AUTO_TOOL_CALL);
    tg_text body = {0}, answer = {0};
    tg_cchat_recv(response, &body);
    int answered = tg_json_words(tg_json_of(&body), &answer);
    fprintf(answered ? stdout : stderr, "%s\n", answered ? answer.data : body.data);
    return answered ? 0 : 1;
}
