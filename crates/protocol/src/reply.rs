//! Every fixed reply, complete with its line end. The texts are exactly those of memcached 1.6.45, up to the replies to
//! commands that memcached does not have, which are the last.

macro_rules! replies {
    ($($name:ident = $text:literal;)*) => {
        $(
            #[doc = concat!("`", $text, "`")]
            pub const $name: &str = concat!($text, "\r\n");
        )*
    };
}

replies! {
    STORED = "STORED";
    NOT_STORED = "NOT_STORED";
    EXISTS = "EXISTS";
    NOT_FOUND = "NOT_FOUND";
    DELETED = "DELETED";
    TOUCHED = "TOUCHED";
    OK = "OK";
    END = "END";
    RESET = "RESET";

    META_HIT = "HD";
    META_MISS = "EN";
    META_NOT_FOUND = "NF";
    META_NOT_STORED = "NS";
    META_EXISTS = "EX";
    META_NOOP = "MN";

    ERROR = "ERROR";
    BAD_FORMAT = "CLIENT_ERROR bad command line format";
    BAD_LINE = "CLIENT_ERROR bad command line";
    BAD_CHUNK = "CLIENT_ERROR bad data chunk";
    BAD_EXPTIME = "CLIENT_ERROR invalid exptime argument";
    BAD_DELTA = "CLIENT_ERROR invalid numeric delta argument";
    NON_NUMERIC = "CLIENT_ERROR cannot increment or decrement non-numeric value";
    STATS_DETAIL_USAGE = "CLIENT_ERROR usage: stats detail on|off|dump";
    STATS_KEYS_NOT_ALLOWED = "CLIENT_ERROR stats of keys not allowed";
    STATS_DETAIL_NOT_ALLOWED = "CLIENT_ERROR stats detail not allowed";
    NO_SUCH_NAMESPACE = "CLIENT_ERROR no such namespace";
    CACHEDUMP_NOT_ALLOWED = "CLIENT_ERROR stats cachedump not allowed";
    ILLEGAL_SLAB = "CLIENT_ERROR Illegal slab id";
    FLUSH_NOT_ALLOWED = "CLIENT_ERROR flush_all not allowed";
    WATCH_NOT_ALLOWED = "CLIENT_ERROR watch commands not allowed";
    REASSIGN_DISABLED = "CLIENT_ERROR slab reassignment disabled";
    CRAWLER_DISABLED = "CLIENT_ERROR lru crawler disabled";
    SLEEP_TOO_LONG = "CLIENT_ERROR sleep must be one second or less";
    BAD_WINDOW = "CLIENT_ERROR automove window too low or too high";
    BAD_SHUTDOWN = "CLIENT_ERROR invalid shutdown mode";

    UNAUTHENTICATED = "CLIENT_ERROR unauthenticated";
    AUTH_TOO_LONG = "CLIENT_ERROR auth token too long";
    AUTH_BAD_END = "CLIENT_ERROR bad command line termination";
    AUTH_BAD_FORMAT = "CLIENT_ERROR bad authentication token format";
    AUTH_FAILURE = "CLIENT_ERROR authentication failure";

    INVALID_FLAG = "CLIENT_ERROR invalid flag";
    BAD_PENALTY = "CLIENT_ERROR invalid penalty for G token, microseconds up to 4294967295 expected";
    DUPLICATE_FLAG = "CLIENT_ERROR duplicate flag";
    INVALID_OR_DUPLICATE_FLAG = "CLIENT_ERROR invalid or duplicate flag";
    TOO_MANY_FLAGS = "CLIENT_ERROR options flags are too long";
    BAD_TOKEN = "CLIENT_ERROR bad token in command line format";
    BAD_BASE64 = "CLIENT_ERROR error decoding key";
    OPAQUE_TOO_LONG = "CLIENT_ERROR opaque token too long";
    BAD_SET_MODE = "CLIENT_ERROR invalid mode for ms M token";
    BAD_ARITH_MODE = "CLIENT_ERROR invalid mode for ma M token";
    BAD_META_INITIAL = "CLIENT_ERROR invalid numeric initial value";
    BAD_META_DELTA = "CLIENT_ERROR invalid numeric delta value";

    TOO_LARGE = "SERVER_ERROR object too large for cache";
    NO_MEMORY_STORING = "SERVER_ERROR out of memory storing object";
    NO_MEMORY = "SERVER_ERROR out of memory";
    NO_MEMORY_NEW_ITEM = "SERVER_ERROR Out of memory allocating new item";
    NO_MEMORY_DURING_READ = "SERVER_ERROR Out of memory during read";
    NO_MEMORY_GET = "SERVER_ERROR out of memory writing get response";
    NO_MEMORY_STATS = "SERVER_ERROR out of memory writing stats";
    NO_MEMORY_REQUEST = "SERVER_ERROR out of memory reading request";
    SHUTDOWN_NOT_ENABLED = "SERVER_ERROR: shutdown not enabled";
    TOO_MANY_CONNECTIONS = "ERROR Too many open connections";

    MEMLIMIT_TOO_SMALL = "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m";
    MEMLIMIT_NOT_MEGABYTES = "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes";
    MEMLIMIT_OUT_OF_BOUNDS = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust";
    SLABS_BUSY = "BUSY currently processing reassign request";
    SLABS_BAD_CLASS = "BADCLASS invalid src or dst class id";
    SLABS_NO_SPARE = "NOSPARE source class has no spare pages";
    SLABS_SAME = "SAME src and dst class are identical";
    CRAWLER_BUSY = "BUSY currently processing crawler request";
    CRAWLER_BAD_CLASS = "BADCLASS invalid class id";
    CRAWLER_NOT_STARTED = "NOTSTARTED no items to crawl";
    METADUMP_NOT_ALLOWED = "ERROR metadump not allowed";
    MGDUMP_NOT_ALLOWED = "ERROR key dump not allowed";
    DUMP_LOCKED = "ERROR locked try again later";
    NOT_OVER_UDP = "CLIENT_ERROR a list of items is sent over TCP only";
    LRU_BAD_PERCENTS = "ERROR hot and warm pcts must not exceed 80";
    LRU_BAD_FACTORS = "ERROR hot/warm age factors must be greater than 0";
    WATCHER_TOO_MANY = "WATCHER_TOO_MANY log watcher limit reached";
    WATCHER_FAILED = "WATCHER_FAILED failed to add log watcher";
    WATCH_NO_PROXY = "CLIENT_ERROR this server is no proxy, and proxyreqs, proxyevents and proxyuser tell of nothing";
    WATCH_PIPELINED = "ERROR cannot pipeline other commands before watch";
    TLS_NOT_ENABLED = "Error TLS not enabled";

    FLUSH_PREFIX_NOT_ALLOWED = "CLIENT_ERROR flush_prefix not allowed";
    BAD_PREFIX = "CLIENT_ERROR a prefix has 1 to 219 bytes";
    TOO_MANY_PREFIXES = "SERVER_ERROR too many prefixes are being deleted: try again, or delete a shorter prefix";
    READ_ONLY = "CLIENT_ERROR not allowed: this user may only read";
    OF_OTHERS = "CLIENT_ERROR not allowed: this user has a namespace, and this is about the whole server";
    KEY_TOO_LONG = "CLIENT_ERROR a key has at most 250 bytes with the namespace of this user before it";
    WORTH_USAGE = "CLIENT_ERROR usage: worth mode auto|penalty|hits|static, or worth objective requests|bytes|time";
}
