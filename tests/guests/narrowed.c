/* Narrows a server twice, lists what is left, and calls: each number on a line. Arguments: server, tool, another tool. */
#include <stdio.h>

#include "toolgate.h"

int main(int argc, char **argv) {
    tg_text text = {0};
    char policy[256];
    if (argc < 4) return 2;
    int32_t server = tg_mcp_open(argv[1]);
    snprintf(policy, sizeof policy, "{\"allow\":[\"%s\"],\"max_calls\":1}", argv[2]);
    printf("narrow %d\n", tg_mcp_narrow(server, policy));
    printf("widen %d\n", tg_mcp_narrow(server, "{\"allow\":[\"*\"]}"));
    tg_mcp_list_tools(server, &text);
    printf("other %s\n", strstr(text.data, argv[3]) == NULL ? "gone" : "there");
    printf("call %d\n", tg_mcp_call_tool(server, argv[3], "{}", &text));
    printf("again %d\n", tg_mcp_call_tool(server, argv[2], "{}", &text));
    tg_free(&text);
    return 0;
}
