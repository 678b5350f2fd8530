/* toolgate_json.h: looks values up in JSON, without taking all of it apart.
 *
 *     tg_json answer = tg_json_of(&response);
 *     tg_json message = tg_json_get(tg_json_item(tg_json_get(answer, "choices"), 0), "message");
 *     tg_json content = tg_json_get(message, "content");
 *     tg_text words = {0};
 *     if (tg_json_string(content, &words)) puts(words.data);
 *
 * A `tg_json` is a piece of the text that it was found in, and good as long as that is. What is not there is a
 * piece without length, and so is all that is looked up in it: only the end needs a check. */
#ifndef TOOLGATE_JSON_H
#define TOOLGATE_JSON_H

#include "toolgate.h"

typedef struct {
    const char *at;
    uint32_t length;
} tg_json;

static inline int tg_json_is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static inline tg_json tg_json_trim(const char *from, const char *end) {
    while (from < end && tg_json_is_space(*from)) from++;
    while (end > from && tg_json_is_space(end[-1])) end--;
    return (tg_json){from, (uint32_t)(end - from)};
}

/* The end of the value that begins at `from`: the first `,`, `:`, `]` or `}` that belongs to what is around it. */
static inline const char *tg_json_end(const char *from, const char *end) {
    int depth = 0, in_string = 0;
    for (; from < end; from++) {
        char c = *from;
        if (in_string) {
            if (c == '\\') from++;
            else if (c == '"') in_string = 0;
        } else if (c == '"') {
            in_string = 1;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (depth == 0 && (c == ',' || c == ':' || c == '}' || c == ']')) {
            return from;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return end;
}

/* What stands next inside of an object or array, from `*at` on, which moves behind it. */
static inline tg_json tg_json_next(tg_json whole, uint32_t *at) {
    const char *from = whole.at + *at, *end = whole.at + whole.length;
    const char *stop = from < end ? tg_json_end(from, end) : end;
    *at = (uint32_t)(stop - whole.at) + 1;
    return tg_json_trim(from, stop < end ? stop : from);
}

static inline tg_json tg_json_of_bytes(const char *bytes, uint32_t length) {
    return tg_json_trim(bytes, bytes + length);
}

static inline tg_json tg_json_of(const tg_text *text) { return tg_json_of_bytes(text->data, text->length); }

/* The value of a member of an object. Keys are compared as they are written. */
static inline tg_json tg_json_get(tg_json object, const char *key) {
    uint32_t at = 1, length = (uint32_t)strlen(key);
    if (object.length == 0 || object.at[0] != '{') return (tg_json){object.at, 0};
    while (at < object.length) {
        tg_json name = tg_json_next(object, &at), value = tg_json_next(object, &at);
        if (name.length == length + 2 && memcmp(name.at + 1, key, length) == 0) return value;
    }
    return (tg_json){object.at, 0};
}

/* An element of an array. */
static inline tg_json tg_json_item(tg_json array, uint32_t index) {
    if (array.length == 0 || array.at[0] != '[') return (tg_json){array.at, 0};
    for (uint32_t at = 1; at < array.length; index--) {
        tg_json value = tg_json_next(array, &at);
        if (index == 0) return value;
    }
    return (tg_json){array.at, 0};
}

/* A whole number; 0 where it is none. */
static inline int64_t tg_json_int(tg_json value) {
    uint32_t at = value.length > 0 && value.at[0] == '-';
    uint64_t number = 0;
    for (; at < value.length && value.at[at] >= '0' && value.at[at] <= '9'; at++) {
        number = number * 10 + (uint64_t)(value.at[at] - '0');
    }
    return value.length > 0 && value.at[0] == '-' ? -(int64_t)number : (int64_t)number;
}

static inline int tg_json_is_true(tg_json value) { return value.length == 4 && memcmp(value.at, "true", 4) == 0; }

static inline uint32_t tg_json_hex(const char *digits) {
    uint32_t number = 0;
    for (int at = 0; at < 4; at++) {
        char c = digits[at];
        number = number * 16 + (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return number;
}

static inline void tg_append_character(tg_text *out, uint32_t c) {
    char bytes[4];
    int length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int at = length - 1; at > 0; at--, c >>= 6) bytes[at] = (char)(0x80 | (c & 0x3f));
    bytes[0] = (char)(length == 1 ? c : (0xf00u >> length & 0xffu) | c);
    tg_append_bytes(out, bytes, (uint32_t)length);
}

static inline char tg_json_escape(char letter) {
    switch (letter) {
        case 'b': return '\b';
        case 'f': return '\f';
        case 'n': return '\n';
        case 'r': return '\r';
        case 't': return '\t';
        default: return letter;
    }
}

/* Appends what a string says, without quotes and escapes. Whether it is a string. */
static inline int tg_json_string(tg_json value, tg_text *out) {
    if (value.length < 2 || value.at[0] != '"') return 0;
    tg_append(out, "");
    const char *at = value.at + 1, *end = value.at + value.length - 1;
    while (at < end) {
        if (*at != '\\') {
            tg_append_bytes(out, at++, 1);
        } else if (at[1] != 'u' || end - at < 6) {
            char meant = tg_json_escape(at[1]);
            tg_append_bytes(out, &meant, 1);
            at += 2;
        } else {
            uint32_t c = tg_json_hex(at + 2);
            at += 6;
            if (c >> 10 == 0xd800 >> 10 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
                c = 0x10000 + ((c & 0x3ff) << 10 | (tg_json_hex(at + 2) & 0x3ff));
                at += 6;
            }
            tg_append_character(out, c);
        }
    }
    return 1;
}

/* The words of an answer, or of a result of MCP: of the first choice, or of all its text. Whether there are any. */
static inline int tg_json_words(tg_json value, tg_text *out) {
    tg_json choice = tg_json_item(tg_json_get(value, "choices"), 0);
    if (tg_json_string(tg_json_get(tg_json_get(choice, "message"), "content"), out)) return 1;
    tg_json content = tg_json_get(value, "content"), part;
    int found = 0;
    for (uint32_t at = 0; (part = tg_json_item(content, at)).length > 0; at++) {
        found |= tg_json_string(tg_json_get(part, "text"), out);
    }
    return found;
}

#endif
