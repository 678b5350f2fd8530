/* Reads the files of a directory through a server, and has a model summarise them.
 *
 * Arguments: the server, and the model. Standard input: the directory. Standard output: the summary. */
#include <stdio.h>
#include <string.h>

#include "toolgate.h"
#include "toolgate_json.h"

/* Calls a tool that takes a path, and appends the text of its result. Whether that went well. */
static int call_with_path(int32_t server, const char *tool, const char *path, tg_text *words) {
    tg_text arguments = {0}, result = {0};
    tg_append(&arguments, "{\"path\":");
    tg_append_quoted(&arguments, path);
    tg_append(&arguments, "}");
    int32_t length = tg_mcp_call_tool(server, tool, arguments.data, &result);
    tg_json said = tg_json_of(&result);
    int well = length >= 0 && !tg_json_is_true(tg_json_get(said, "isError")) && tg_json_words(said, words);
    if (!well) fprintf(stderr, "%s %s: error %d %s\n", tool, path, length < 0 ? -length : 0, result.data);
    tg_free(&arguments);
    tg_free(&result);
    return well;
}

/* Appends every file of the directory, each under its name. How many there are. */
static int read_files(int32_t server, const char *directory, tg_text *words) {
    tg_text list = {0};
    int files = 0;
    if (!call_with_path(server, "list_directory", directory, &list)) return 0;
    for (char *line = strtok(list.data, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strncmp(line, "[FILE] ", 7) != 0) continue;
        const char *name = line + 7;
        tg_text path = {0};
        tg_append(&path, directory);
        tg_append(&path, "/");
        tg_append(&path, name);
        tg_log(TG_LOG_INFO, name);
        tg_append(words, name);
        tg_append(words, ":\n");
        files += call_with_path(server, "read_text_file", path.data, words);
        tg_append(words, "\n");
        tg_free(&path);
    }
    tg_free(&list);
    return files;
}

int main(int argc, char **argv) {
    char directory[1024];
    if (argc < 3 || fgets(directory, sizeof directory, stdin) == NULL) {
        fputs("give a server and a model as arguments, and a directory as input\n", stderr);
        return 2;
    }
    directory[strcspn(directory, "\n")] = '\0';

    int32_t server = tg_mcp_open(argv[1]);
    if (server < 0) {
        fprintf(stderr, "open %s: error %d\n", argv[1], -server);
        return 1;
    }
    tg_text files = {0};
    if (read_files(server, directory, &files) == 0) return 1;

    int32_t chat = cchat_create();
    tg_set_string(chat, "model", argv[2]);
    tg_set_json(chat, "mcp.enabled", "false"); /* all that the model needs is in the question */
    tg_say(chat, "system", "Summarise the files in one sentence.");
    tg_say(chat, "user", files.data);

    tg_text body = {0}, summary = {0};
    tg_cchat_recv(cchat_send(chat, 0), &body);
    int answered = tg_json_words(tg_json_of(&body), &summary);
    fprintf(answered ? stdout : stderr, "%s\n", answered ? summary.data : body.data);
    return answered ? 0 : 1;
}
