/* toolgate.h: what a WebAssembly guest can ask of Toolgate.
 *
 * C99, one file, to be compiled for wasm32:
 *
 *     python -m ziglang cc --target=wasm32-wasi -Os -s -Wl,-z,stack-size=131072 -Wl,--export-table \
 *         -Isdk/c -o guest.wasm guest.c
 *
 * The first part declares the functions that the host has in its module `spear`, with the names and types of
 * SPEAR's ABI: a guest for one host runs on the other. `<stdio.h>` and the like work beside them: arguments,
 * environment, standard input and output and clocks are there; files and sockets are not.
 * The second part, small functions of our own on top of those, needs `malloc`; `TOOLGATE_NO_HELPERS` leaves it
 * out, and with it everything that this header needs of a C library.
 *
 * RESULTS. A negative result is an error: one of the numbers below, negated. Zero and more is success.
 * What can end a run (its deadline, its fuel, a cancellation) ends it within the call; nothing is returned.
 *
 * BUFFERS. What is handed to the host is a pointer and a length in bytes; text is UTF-8 and needs no NUL.
 * What the host hands over is written to `out`. `*out_length` is the room there before the call, and the length
 * of what was written after it, which is also the result. Where the room is too small, nothing is written,
 * `*out_length` is the room that is needed, and the result is -TG_ENOSPC: make the same call again with so much.
 *
 * DESCRIPTORS ("fd") are numbers from 1000, and none is given out twice. One that is closed, was never open, or
 * is of another kind is -TG_EBADF. All of them are closed when the guest ends. */
#ifndef TOOLGATE_H
#define TOOLGATE_H

#include <stdint.h>
#ifndef TOOLGATE_NO_HELPERS
#include <stdlib.h>
#include <string.h>
#endif

/* ---- Errors. The numbers are Linux's, which are not those of <errno.h> in a guest: hence the prefix. ---- */

#define TG_EPERM 1
#define TG_ENOENT 2        /* there is no such server or tool for this task */
#define TG_EIO 5           /* the server failed or cannot be reached; or a parameter is not JSON */
#define TG_E2BIG 7         /* more than the host takes */
#define TG_EBADF 9         /* no open descriptor of the kind that is meant */
#define TG_EAGAIN 11       /* busy: later it may work */
#define TG_ENOMEM 12
#define TG_EACCES 13       /* the task's policy does not allow it */
#define TG_EFAULT 14       /* a pointer, or a length, that leads out of the guest's memory */
#define TG_EINVAL 22       /* a value that makes no sense here, or is no UTF-8 */
#define TG_EMFILE 24       /* as many descriptors are open as may be */
#define TG_ENOSPC 28       /* the buffer is too small: `*out_length` has what is needed */
#define TG_EPIPE 32
#define TG_ENOSYS 38
#define TG_ENOTSUP 95
#define TG_ECONNRESET 104
#define TG_ENOTCONN 107
#define TG_ETIMEDOUT 110   /* the server took longer than it may */
#define TG_ECANCELED 125

#define TG_IMPORT(name) __attribute__((import_module("spear"), import_name(#name)))

/* ---- Time, chance, and the log of the run ---- */

/* Milliseconds, and seconds, since the beginning of 1970. */
TG_IMPORT(time_now_ms) int64_t time_now_ms(void);
TG_IMPORT(wall_time_s) int64_t wall_time_s(void);

/* Waits. The end of the run does not wait for it. */
TG_IMPORT(sleep_ms) void sleep_ms(int32_t milliseconds);

/* Any of all numbers there are; good enough for keys. */
TG_IMPORT(random_i64) int64_t random_i64(void);

#define TG_LOG_TRACE 0
#define TG_LOG_DEBUG 1
#define TG_LOG_INFO 2
#define TG_LOG_WARN 3
#define TG_LOG_ERROR 4

/* Writes a line into the log of the run, which whoever runs the task sees at once. 0, or -TG_EINVAL for more
 * than 16 KiB. (The import is called `log`, which in C is a logarithm.) */
TG_IMPORT(log) int32_t spear_log(int32_t level, const char *text, uint32_t length);

/* ---- Chats with a model: a session takes messages, `send` makes a response of them, `recv` reads it ---- */

/* A session: its descriptor, or -TG_EMFILE. It begins with what the task says of servers and tools. */
TG_IMPORT(cchat_create) int32_t cchat_create(void);

/* Adds a message: `role` is "system", "user" or "assistant". 0, or -TG_EBADF, -TG_EINVAL or -TG_ENOMEM for more than
 * a message or a session may have. */
TG_IMPORT(cchat_write_msg)
int32_t cchat_write_msg(int32_t fd, const char *role, uint32_t role_length, const char *content,
                        uint32_t content_length);

/* A function of the guest that a model may call. It is called during `cchat_send` with TG_AUTO_TOOL_CALL, in the
 * guest's own thread: JSON arguments in, JSON or text out, by the convention of buffers; 0 where it went well.
 * -TG_ENOSPC with the length that is needed: it is called once more, with that much room if the arena has it.
 * Any other number tells the model that the tool has failed. Arguments and result stand in the session's arena,
 * which is to be named first (parameters `tool_arena_ptr` and `tool_arena_len`). */
typedef int32_t (*tg_tool)(const char *arguments, uint32_t arguments_length, char *out, uint32_t *out_length);

/* Offers such a function under the name in `declaration`: a tool as OpenAI's API has it,
 * {"type":"function","function":{"name":…,"description":…,"parameters":…}}. `function` is its place in the table
 * of the module, which is what a pointer to it is; the module must export its table (-Wl,--export-table).
 * It hides a tool of MCP of the same name; of two with one name the first stays. 0, or -TG_EBADF, -TG_EINVAL, or
 * -TG_ENOMEM. */
TG_IMPORT(cchat_write_fn)
int32_t cchat_write_fn(int32_t fd, int32_t function, const char *declaration, uint32_t declaration_length);

#define TG_CCHAT_SET_PARAM 1
#define TG_CCHAT_GET_METRICS 2

/* SET_PARAM, of a session: `argument` is {"key":…,"value":…}, `*argument_length` its length. 0, or an error, and
 * then nothing has changed: -TG_EIO for what is not JSON or has no key, -TG_EINVAL for a value of a wrong kind,
 * -TG_EACCES for what the task does not allow (a server outside of it; any key that begins with `mcp.task_`).
 *   model, backend                          which one is asked, and of which chat upstream
 *   timeout_ms                              how long one send may take
 *   max_iterations, max_total_tool_calls    how far the model may go with tools, within the task's budgets
 *   max_tool_output_bytes                   what it is shown of one result
 *   tool_arena_ptr, tool_arena_len          where the guest's own tools find arguments and leave results
 *   mcp.enabled                             true or false: whether tools of MCP are offered
 *   mcp.server_ids                          of these servers; [] is none
 *   mcp.tool_allowlist, mcp.tool_denylist   patterns; they only narrow what the task has
 *   any other                               goes to the model as it is (temperature, tool_choice, …)
 * GET_METRICS, of a response: `argument` is a buffer to be written, here with {"prompt_tokens":…,…} if the
 * response was asked for with TG_ENABLE_METRICS, else with {}. Any other command is -TG_EINVAL. */
TG_IMPORT(cchat_ctl) int32_t cchat_ctl(int32_t fd, int32_t command, char *argument, uint32_t *argument_length);

#define TG_ENABLE_METRICS 1
#define TG_AUTO_TOOL_CALL 2

/* Asks the model, and waits for the answer: the descriptor of a response. With TG_AUTO_TOOL_CALL the tools that it
 * calls are run, in rounds, and the session keeps all that was said; without, its calls are in the response, and
 * the session stays as it is. What fails on the way is a response, too: {"error":{"code":…,"message":…}}.
 * -TG_EBADF, -TG_EMFILE or -TG_ENOMEM where there is no place for a response, -TG_EAGAIN from a tool of the same
 * session. */
TG_IMPORT(cchat_send) int32_t cchat_send(int32_t fd, int32_t flags);

/* The response as JSON: OpenAI's `chat.completion`, or an error. It can be read again. A buffer, as above. */
TG_IMPORT(cchat_recv) int32_t cchat_recv(int32_t response_fd, char *out, uint32_t *out_length);

/* Of a session or a response. 0, or -TG_EBADF. */
TG_IMPORT(cchat_close) int32_t cchat_close(int32_t fd);

/* ---- MCP servers, called directly. What the task does not show does not exist here either. ---- */

/* A server of the task: its descriptor; -TG_EACCES for one outside of the task, -TG_ENOENT, -TG_EMFILE. */
TG_IMPORT(mcp_open) int32_t mcp_open(const char *server_id, uint32_t server_id_length);

/* {"server_id":…,"tools":[{"name":…,"description":…,"inputSchema":…}]}: what may be called. A buffer. */
TG_IMPORT(mcp_list_tools) int32_t mcp_list_tools(int32_t fd, char *out, uint32_t *out_length);

/* Calls a tool by the name that its server gives it, with one JSON object. A buffer with the result as MCP has it,
 * {"content":[…],"isError":…}, or with the server's own error, {"error":{"code":…,"message":…,"retryable":…}}.
 * A call that ends with -TG_ENOSPC has been made: the next one, with the same bytes, gets what is kept, and calls
 * nothing. -TG_ENOENT for a tool that is not there, -TG_EACCES, -TG_EINVAL for arguments that are not an object,
 * -TG_ETIMEDOUT, -TG_EAGAIN for a busy server or a run that has made as many calls as it may, -TG_EIO, -TG_ENOMEM
 * where too much was left with the host; `last_error` of TG_FD_GET_STATUS then says more. */
TG_IMPORT(mcp_call_tool)
int32_t mcp_call_tool(int32_t fd, const char *tool, uint32_t tool_length, const char *arguments,
                      uint32_t arguments_length, char *out, uint32_t *out_length);

/* 0, or -TG_EBADF. */
TG_IMPORT(mcp_close) int32_t mcp_close(int32_t fd);

/* The servers that `mcp_open` opens, {"servers":[{"server_id":…,"tools":[…],…}]}; and one of them, or -TG_ENOENT.
 * A buffer each. */
TG_IMPORT(mcp_registry_list) int32_t mcp_registry_list(char *out, uint32_t *out_length);
TG_IMPORT(mcp_registry_get)
int32_t mcp_registry_get(const char *server_id, uint32_t server_id_length, char *out, uint32_t *out_length);

/* ---- Descriptors: what one is and how it is, and waiting for several ---- */

#define TG_FD_SET_FLAGS 1    /* {"set":["O_NONBLOCK"],"clear":[]}, of `*argument_length` bytes: 0; it changes nothing */
#define TG_FD_GET_FLAGS 2    /* {"flags":[…]}, into a buffer, as all that follow */
#define TG_FD_GET_KIND 3     /* {"kind":…} */
#define TG_FD_GET_STATUS 4   /* {"kind":…,"flags":…,"poll_mask":[…],"closed":…,"last_error":…} */
#define TG_FD_GET_METRICS 5  /* the usage of a response, or {} */
#define TG_FD_NARROW 100     /* of a server: {"allow":[…],"deny":[…],"max_calls":…,"timeout_ms":…,"max_output_bytes":…}: 0 */

/* -TG_EINVAL for any other command. TG_FD_NARROW takes tools, calls, time and output away from a descriptor of `mcp_open`,
 * and never gives any back: -TG_EACCES for an allowlist that holds more than the one before. */
TG_IMPORT(spear_fd_ctl) int32_t spear_fd_ctl(int32_t fd, int32_t command, char *argument, uint32_t *argument_length);

#define TG_EPOLL_ADD 1
#define TG_EPOLL_MOD 2
#define TG_EPOLL_DEL 3
#define TG_EPOLL_IN 0x1
#define TG_EPOLL_OUT 0x4
#define TG_EPOLL_ERR 0x8
#define TG_EPOLL_HUP 0x10

typedef struct {
    int32_t fd;
    int32_t events;
} tg_epoll_event;

/* A set of descriptors to wait for. `spear_epoll_wait` fills `out` with a `tg_epoll_event` for each that is ready,
 * and returns how many: 0 when `timeout_ms` is over. Below 0 it waits for ever, at 0 not at all. Room for less
 * than one is -TG_ENOSPC. A set in a set is -TG_EINVAL; to change or take out what is not in it, -TG_ENOENT.
 * A response is ready to be read, a server too while a result of it is kept; a session is ready to be written. Calls
 * are answered before they return, so nothing becomes ready while a guest waits. */
TG_IMPORT(spear_epoll_create) int32_t spear_epoll_create(void);
TG_IMPORT(spear_epoll_ctl) int32_t spear_epoll_ctl(int32_t epoll_fd, int32_t operation, int32_t fd, int32_t events);
TG_IMPORT(spear_epoll_wait)
int32_t spear_epoll_wait(int32_t epoll_fd, tg_epoll_event *out, uint32_t *out_length, int32_t timeout_ms);
TG_IMPORT(spear_epoll_close) int32_t spear_epoll_close(int32_t epoll_fd);

#ifndef TOOLGATE_NO_HELPERS

/* ==== Helpers of our own ====
 *
 * A `tg_text` begins as {0}, is NUL-terminated once something was put in, and can be used again and again;
 * `tg_free` gives its memory back. Where memory has run out, the guest ends with a trap. */

typedef struct {
    char *data;
    uint32_t length;
    uint32_t room;
} tg_text;

/* ---- Text ---- */

static inline void tg_reserve(tg_text *text, uint32_t length) {
    if (length < text->room) return;
    uint32_t room = length < 4096 ? 4096 : length + length / 2 + 1;
    char *data = room > length ? realloc(text->data, room) : NULL;
    if (data == NULL) __builtin_trap();
    text->data = data;
    text->room = room;
}

static inline void tg_append_bytes(tg_text *text, const char *bytes, uint32_t length) {
    tg_reserve(text, text->length + length);
    memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

static inline void tg_append(tg_text *text, const char *words) {
    tg_append_bytes(text, words, (uint32_t)strlen(words));
}

static inline void tg_append_int(tg_text *text, int64_t number) {
    char digits[20];
    int at = sizeof digits;
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (number < 0) tg_append(text, "-");
    tg_append_bytes(text, digits + at, (uint32_t)(sizeof digits - (size_t)at));
}

/* As a JSON string, in quotes. */
static inline void tg_append_quoted(tg_text *text, const char *words) {
    static const char hex[] = "0123456789abcdef";
    tg_append(text, "\"");
    for (; *words != '\0'; words++) {
        unsigned char c = (unsigned char)*words;
        char escape[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        if (c == '"' || c == '\\') tg_append(text, "\\");
        tg_append_bytes(text, c < 0x20 ? escape : words, c < 0x20 ? sizeof escape : 1);
    }
    tg_append(text, "\"");
}

static inline void tg_clear(tg_text *text) {
    tg_reserve(text, 0);
    text->length = 0;
    text->data[0] = '\0';
}

static inline void tg_free(tg_text *text) {
    free(text->data);
    memset(text, 0, sizeof *text);
}

/* ---- Calls whose result is as long as it is: made again with the room that it takes ---- */

/* Before such a call: where it finds the room, and leaves the length. */
static inline uint32_t *tg_room(tg_text *text) {
    tg_clear(text);
    text->length = text->room - 1;
    return &text->length;
}

/* After it: whether the room was too small, and is large enough now. */
static inline int tg_again(tg_text *text, int32_t result) {
    if (result == -TG_ENOSPC && text->length >= text->room) {
        tg_reserve(text, text->length);
        return 1;
    }
    text->length = result < 0 ? 0 : (uint32_t)result;
    text->data[text->length] = '\0';
    return 0;
}

/* Each leaves the result in `out`, and returns what the host did. */

static inline int32_t tg_cchat_recv(int32_t response_fd, tg_text *out) {
    int32_t result;
    do {
        uint32_t *length = tg_room(out);
        result = cchat_recv(response_fd, out->data, length);
    } while (tg_again(out, result));
    return result;
}

static inline int32_t tg_mcp_list_tools(int32_t fd, tg_text *out) {
    int32_t result;
    do {
        uint32_t *length = tg_room(out);
        result = mcp_list_tools(fd, out->data, length);
    } while (tg_again(out, result));
    return result;
}

/* The tool is called once, however often the host is asked. */
static inline int32_t tg_mcp_call_tool(int32_t fd, const char *tool, const char *arguments, tg_text *out) {
    int32_t result;
    do {
        uint32_t *length = tg_room(out);
        result = mcp_call_tool(fd, tool, (uint32_t)strlen(tool), arguments, (uint32_t)strlen(arguments), out->data,
                               length);
    } while (tg_again(out, result));
    return result;
}

static inline int32_t tg_mcp_registry_list(tg_text *out) {
    int32_t result;
    do {
        uint32_t *length = tg_room(out);
        result = mcp_registry_list(out->data, length);
    } while (tg_again(out, result));
    return result;
}

/* One of the commands TG_FD_GET_…. */
static inline int32_t tg_fd_get(int32_t fd, int32_t command, tg_text *out) {
    int32_t result;
    do {
        uint32_t *length = tg_room(out);
        result = spear_fd_ctl(fd, command, out->data, length);
    } while (tg_again(out, result));
    return result;
}

/* ---- The rest, with strings for pointers and lengths ---- */

static inline int32_t tg_log(int32_t level, const char *words) {
    return spear_log(level, words, (uint32_t)strlen(words));
}

static inline int32_t tg_mcp_open(const char *server_id) {
    return mcp_open(server_id, (uint32_t)strlen(server_id));
}

/* Narrows what a server's descriptor may be used for; `policy` is the JSON of TG_FD_NARROW. */
static inline int32_t tg_mcp_narrow(int32_t fd, const char *policy) {
    uint32_t length = (uint32_t)strlen(policy);
    return spear_fd_ctl(fd, TG_FD_NARROW, (char *)policy, &length);
}

static inline int32_t tg_say(int32_t fd, const char *role, const char *content) {
    return cchat_write_msg(fd, role, (uint32_t)strlen(role), content, (uint32_t)strlen(content));
}

/* `json` is any value: true, 8, ["fs"], "text" with its quotes. */
static inline int32_t tg_set_json(int32_t fd, const char *key, const char *json) {
    tg_text pair = {0};
    tg_append(&pair, "{\"key\":");
    tg_append_quoted(&pair, key);
    tg_append(&pair, ",\"value\":");
    tg_append(&pair, json);
    tg_append(&pair, "}");
    int32_t result = cchat_ctl(fd, TG_CCHAT_SET_PARAM, pair.data, &pair.length);
    tg_free(&pair);
    return result;
}

static inline int32_t tg_set_string(int32_t fd, const char *key, const char *value) {
    tg_text json = {0};
    tg_append_quoted(&json, value);
    int32_t result = tg_set_json(fd, key, json.data);
    tg_free(&json);
    return result;
}

static inline int32_t tg_set_int(int32_t fd, const char *key, int64_t value) {
    tg_text json = {0};
    tg_append_int(&json, value);
    int32_t result = tg_set_json(fd, key, json.data);
    tg_free(&json);
    return result;
}

/* A tool of the guest's own: `declaration` as in `cchat_write_fn`. */
static inline int32_t tg_offer(int32_t fd, tg_tool tool, const char *declaration) {
    return cchat_write_fn(fd, (int32_t)(intptr_t)tool, declaration, (uint32_t)strlen(declaration));
}

/* Where tools of the guest's own find their arguments and leave their results. */
static inline int32_t tg_set_arena(int32_t fd, void *arena, uint32_t length) {
    int32_t result = tg_set_int(fd, "tool_arena_ptr", (int64_t)(uintptr_t)arena);
    return result < 0 ? result : tg_set_int(fd, "tool_arena_len", length);
}

/* What a tool hands back: 0, or -TG_ENOSPC with the length that is needed. */
static inline int32_t tg_hand_over(const tg_text *text, char *out, uint32_t *out_length) {
    uint32_t room = *out_length;
    *out_length = text->length;
    if (text->length > room) return -TG_ENOSPC;
    memcpy(out, text->data, text->length);
    return 0;
}

#endif /* TOOLGATE_NO_HELPERS */

#endif
