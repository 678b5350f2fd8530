/* Lists the tools of a server, and calls one, without any model.
 *
 * Arguments: the server, and a tool of it. Standard input: the tool's arguments, one JSON object. */
#include <stdio.h>

#include "toolgate.h"
#include "toolgate_json.h"

static int failed(const char *doing, int32_t result) {
    fprintf(stderr, "%s: error %d\n", doing, -result);
    return 1;
}

static void print_names(tg_json tools) {
    tg_json tool;
    for (uint32_t at = 0; (tool = tg_json_item(tools, at)).length > 0; at++) {
        tg_text name = {0};
        tg_json_string(tg_json_get(tool, "name"), &name);
        puts(name.data);
        tg_free(&name);
    }
}

int main(int argc, char **argv) {
    char arguments[4096];
    if (argc < 3) {
        fputs("give a server and a tool as arguments\n", stderr);
        return 2;
    }
    if (fgets(arguments, sizeof arguments, stdin) == NULL) arguments[0] = '\0';

    int32_t server = tg_mcp_open(argv[1]);
    if (server < 0) return failed("open", server);

    tg_text text = {0};
    int32_t result = tg_mcp_list_tools(server, &text);
    if (result < 0) return failed("list", result);
    print_names(tg_json_get(tg_json_of(&text), "tools"));

    result = tg_mcp_call_tool(server, argv[2], arguments[0] != '\0' ? arguments : "{}", &text);
    if (result < 0) {
        /* What the number cannot say stands in the status of the descriptor. */
        tg_fd_get(server, TG_FD_GET_STATUS, &text);
        fprintf(stderr, "%s\n", text.data);
        return failed("call", result);
    }
    puts(text.data);
    mcp_close(server);
    return tg_json_is_true(tg_json_get(tg_json_of(&text), "isError")) ? 1 : 0;
}
