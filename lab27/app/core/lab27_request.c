#include "lab27_request.h"

#include <string.h>

#include "lab27.h"

typedef struct {
    const char *at, *end;
} cursor;

static void space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) c->at++;
}

static bool take(cursor *c, char wanted)
{
    space(c);
    if (c->at == c->end || *c->at != wanted) return false;
    c->at++;
    return true;
}

static bool take_word(cursor *c, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) return false;
    c->at += length;
    return true;
}

/* Printable ASCII without escapes: no value of a request needs more, and what is read can be written back as it stands. */
static bool take_string(cursor *c, char *to, size_t size)
{
    size_t length = 0;
    if (!take(c, '"')) return false;
    for (; c->at < c->end && *c->at != '"'; c->at++) {
        if (*c->at < 0x20 || *c->at > 0x7e || *c->at == '\\' || length + 1 >= size) return false;
        to[length++] = *c->at;
    }
    to[length] = 0;
    return take(c, '"');
}

static bool take_bool(cursor *c, bool *to)
{
    space(c);
    *to = take_word(c, "true");
    return *to || take_word(c, "false");
}

static bool digits(const char **at, int count, int *value)
{
    *value = 0;
    for (; count > 0; count--, (*at)++) {
        if (**at < '0' || **at > '9') return false;
        *value = *value * 10 + (**at - '0');
    }
    return true;
}

static bool take_permille(cursor *c, uint32_t *to)
{
    space(c);
    uint32_t value = 0;
    int count = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9' && count < 4; c->at++, count++) value = value * 10 + (uint32_t)(*c->at - '0');
    *to = value;
    return value >= 10 && value <= 1000 && (count == 2 || value >= 100) && (count < 4 || value == 1000);
}

/* Days from 1970-01-01 to a date of the years 2000 to 2199. */
static int64_t days_since_1970(int year, int month, int day)
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    bool leap = year % 4 == 0 && year != 2100;
    int leaps = (year - 1997) / 4 - (year > 2100); /* since 2000, before this year */
    return 10957 + (int64_t)(year - 2000) * 365 + leaps + before[month - 1] + (leap && month > 2) + day - 1;
}

static int days_in_month(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return days[month - 1] + (month == 2 && year % 4 == 0 && year != 2100);
}

/* RFC 3339 with at most nine decimals. Years outside 2000 to 2199 are refused: no run is planned there. */
static bool rfc3339(const char *at, int64_t *unix_ns)
{
    int year, month, day, hour, minute, second, zone_hour = 0, zone_minute = 0;
    if (!digits(&at, 4, &year) || *at++ != '-' || !digits(&at, 2, &month) || *at++ != '-' || !digits(&at, 2, &day) || *at++ != 'T' ||
        !digits(&at, 2, &hour) || *at++ != ':' || !digits(&at, 2, &minute) || *at++ != ':' || !digits(&at, 2, &second))
        return false;
    int64_t ns = 0;
    if (*at == '.') {
        int64_t unit = 100000000;
        at++;
        if (*at < '0' || *at > '9') return false;
        for (; *at >= '0' && *at <= '9'; at++, unit /= 10) {
            if (unit == 0) return false;
            ns += (*at - '0') * unit;
        }
    }
    int sign = *at == '-' ? -1 : 1;
    if (*at == 'Z') {
        at++;
    } else if (*at == '+' || *at == '-') {
        at++;
        if (!digits(&at, 2, &zone_hour) || *at++ != ':' || !digits(&at, 2, &zone_minute)) return false;
    } else {
        return false;
    }
    if (*at != 0 || year < 2000 || year > 2199 || month < 1 || month > 12 || day < 1 || day > days_in_month(year, month) || hour > 23 ||
        minute > 59 || second > 59 || zone_hour > 23 || zone_minute > 59)
        return false;
    int64_t seconds = days_since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
    *unix_ns = (seconds - sign * (zone_hour * 3600 + zone_minute * 60)) * 1000000000 + ns;
    return true;
}

static bool is_hex(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f'))) return false;
    return true;
}

bool lab27_is_nonce(const char *text)
{
    return strlen(text) == 36 && is_hex(text, 8) && text[8] == '-' && is_hex(text + 9, 4) && text[13] == '-' && is_hex(text + 14, 4) &&
           text[18] == '-' && is_hex(text + 19, 4) && text[23] == '-' && is_hex(text + 24, 12);
}

/* A run's name is a directory's name: letters, digits, '.', '_', '-', and it begins with neither '.' nor '-'. */
static bool is_run_name(const char *text)
{
    if (*text == 0 || *text == '.' || *text == '-') return false;
    for (; *text; text++)
        if (!((*text >= '0' && *text <= '9') || (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') || *text == '.' ||
              *text == '_' || *text == '-'))
            return false;
    return true;
}

static bool one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(text, *words) == 0) return true;
    return false;
}

static const char *check(lab27_request *r, bool has_permille)
{
    static const char *const purposes[] = {"formal", "study", "cost-off", "cost-on", "rehearsal", NULL};
    bool rehearsal = strcmp(r->recipe, LAB27_RECIPE_REHEARSAL) == 0, formal = strcmp(r->purpose, "formal") == 0;

    if (strcmp(r->schema, "lab27.request/1") != 0) return "schema is not lab27.request/1";
    if (!is_run_name(r->run_name)) return "runName is not a name of letters, digits, dots, underscores and hyphens";
    if (!rehearsal && strcmp(r->recipe, LAB27_RECIPE) != 0) return "unknown recipe";
    if (!one_of(r->purpose, purposes)) return "unknown purpose";
    if (formal && rehearsal) return "a formal run takes the whole recipe";
    if (!r->reference_enabled && strcmp(r->purpose, "cost-off") != 0) return "only cost-off may run without the reference";
    if (r->app_version[0] == 0) return "appVersion is empty";
    if (strlen(r->source_digest) != 64 || !is_hex(r->source_digest, 64)) return "sourceDigest is not a SHA-256 in lower-case hex";
    if (!lab27_is_nonce(r->nonce)) return "nonce is not a lower-case UUID";
    if (!rfc3339(r->issued_at, &r->issued_unix_ns)) return "issuedAt is not an RFC 3339 time";
    if (!rfc3339(r->expires_at, &r->expires_unix_ns)) return "expiresAt is not an RFC 3339 time";
    if (r->expires_unix_ns <= r->issued_unix_ns) return "expiresAt is not after issuedAt";
    if (r->expires_unix_ns - r->issued_unix_ns > LAB27_MAX_REQUEST_LIFE_NS) return "expiresAt is more than ten minutes after issuedAt";
    if (rehearsal != has_permille) return "durationPermille belongs to a scaled rehearsal, and only there";
    return NULL;
}

const char *lab27_request_parse(const char *text, size_t length, lab27_request *out)
{
    static const char *const keys[] = {"schema",       "runName",  "recipe",    "purpose", "appVersion",       "sourceDigest",
                                       "issuedAt",     "expiresAt", "nonce",    "referenceEnabled", "durationPermille"};
    enum { STRINGS = 9, REFERENCE = 9, PERMILLE = 10, KEYS = 11 };
    memset(out, 0, sizeof *out);
    out->duration_permille = 1000;
    struct {
        char *to;
        size_t size;
    } strings[STRINGS] = {{out->schema, sizeof out->schema},           {out->run_name, sizeof out->run_name},
                          {out->recipe, sizeof out->recipe},           {out->purpose, sizeof out->purpose},
                          {out->app_version, sizeof out->app_version}, {out->source_digest, sizeof out->source_digest},
                          {out->issued_at, sizeof out->issued_at},     {out->expires_at, sizeof out->expires_at},
                          {out->nonce, sizeof out->nonce}};
    bool seen[KEYS] = {false};

    if (length > LAB27_MAX_REQUEST_BYTES) return "longer than 4096 bytes";
    cursor c = {text, text + length};
    if (!take(&c, '{')) return "not a JSON object";
    do {
        char key[20];
        int k = 0;
        if (!take_string(&c, key, sizeof key) || !take(&c, ':')) return "want a known key and a colon";
        while (k < KEYS && strcmp(key, keys[k]) != 0) k++;
        if (k == KEYS) return "a key that a request does not have";
        if (seen[k]) return "a key twice";
        seen[k] = true;
        bool ok = k < STRINGS     ? take_string(&c, strings[k].to, strings[k].size)
                  : k == REFERENCE ? take_bool(&c, &out->reference_enabled)
                                   : take_permille(&c, &out->duration_permille);
        if (!ok) return "a value of the wrong type, too long, or out of range";
    } while (take(&c, ','));
    if (!take(&c, '}')) return "want a comma or the end of the object";
    space(&c);
    if (c.at != c.end) return "bytes after the object";
    for (int k = 0; k < PERMILLE; k++)
        if (!seen[k]) return "a key is missing";
    return check(out, seen[PERMILLE]);
}
