//! Errors in Redis's own words. Clients look at their beginnings.

use larder_protocol::resp::limits::REPEATED_BYTES_MAX;
use larder_protocol::resp::{Args, Command, Fault, absence};
use std::borrow::Cow;

/// An error: its text without the leading `-`.
pub(in crate::dispatch) type Error = Cow<'static, [u8]>;

pub(in crate::dispatch) const SYNTAX: Error = text("ERR syntax error");
pub(in crate::dispatch) const WRONG_KIND: Error =
    text("WRONGTYPE Operation against a key holding the wrong kind of value");
pub(in crate::dispatch) const COLLECTION_TOO_LARGE: Error =
    text("ERR the collection would be larger than an item may be (-I, --max-item-size)");
pub(in crate::dispatch) const REPLY_TOO_LARGE: Error =
    text("OOM the reply does not fit into the memory for connection buffers");
pub(in crate::dispatch) const FIELD_NOT_INTEGER: Error = text("ERR hash value is not an integer");
pub(in crate::dispatch) const FIELD_NOT_FLOAT: Error = text("ERR hash value is not a float");
pub(in crate::dispatch) const DELTA_NOT_FINITE: Error = text("ERR value is NaN or Infinity");
pub(in crate::dispatch) const OUT_OF_64_BITS: Error =
    text("ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807");
pub(in crate::dispatch) const OUT_OF_RANGE: Error = text("ERR value is out of range");
pub(in crate::dispatch) const NOT_POSITIVE: Error = text("ERR value is out of range, must be positive");
pub(in crate::dispatch) const SCORE_RANGE: Error = text("ERR min or max is not a float");
pub(in crate::dispatch) const MEMBER_RANGE: Error = text("ERR min or max not valid string range item");
pub(in crate::dispatch) const LIMIT_OF_RANKS: Error =
    text("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX");
pub(in crate::dispatch) const SCORES_OF_MEMBERS: Error =
    text("ERR syntax error, WITHSCORES not supported in combination with BYLEX");
pub(in crate::dispatch) const NEW_AND_PRESENT: Error =
    text("ERR XX and NX options at the same time are not compatible");
pub(in crate::dispatch) const GREATER_AND_NEW: Error =
    text("ERR GT, LT, and/or NX options at the same time are not compatible");
pub(in crate::dispatch) const SEVERAL_INCREMENTS: Error =
    text("ERR INCR option supports a single increment-element pair");
pub(in crate::dispatch) const NO_SCORE: Error = text("ERR resulting score is not a number (NaN)");
pub(in crate::dispatch) const WEIGHT_NOT_FLOAT: Error = text("ERR weight value is not a float");
pub(in crate::dispatch) const NUMBER_OF_KEYS: Error = text("ERR numkeys should be greater than 0");
pub(in crate::dispatch) const LIMIT: Error = text("ERR LIMIT can't be negative");
pub(in crate::dispatch) const COUNT: Error = text("ERR count should be greater than 0");
pub(in crate::dispatch) const FIELDS_DIFFER: Error =
    text("ERR numfields should be greater than 0 and match the provided number of fields");
pub(in crate::dispatch) const NOT_INTEGER: Error = text("ERR value is not an integer or out of range");
pub(in crate::dispatch) const NOT_32_BITS: Error =
    text("ERR value is out of range, value must between -2147483648 and 2147483647");
pub(in crate::dispatch) const NOT_FLOAT: Error = text("ERR value is not a valid float");
pub(in crate::dispatch) const INFINITE: Error = text("ERR increment would produce NaN or Infinity");
pub(in crate::dispatch) const OVERFLOW: Error = text("ERR increment or decrement would overflow");
pub(in crate::dispatch) const DECREMENT_OVERFLOW: Error = text("ERR decrement would overflow");
pub(in crate::dispatch) const OFFSET: Error = text("ERR offset is out of range");
pub(in crate::dispatch) const BIT_OFFSET: Error = text("ERR bit offset is not an integer or out of range");
pub(in crate::dispatch) const BIT: Error = text("ERR bit is not an integer or out of range");
pub(in crate::dispatch) const BIT_ARGUMENT: Error = text("ERR The bit argument must be 1 or 0.");
pub(in crate::dispatch) const TOO_LARGE: Error =
    text("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
pub(in crate::dispatch) const NO_MEMORY: Error =
    text("OOM command not allowed when used memory > 'maxmemory'.");
pub(in crate::dispatch) const NO_SUCH_KEY: Error = text("ERR no such key");
pub(in crate::dispatch) const SAME_OBJECTS: Error = text("ERR source and destination objects are the same");
pub(in crate::dispatch) const DB_INDEX: Error = text("ERR DB index is out of range");
pub(in crate::dispatch) const NO_EXCHANGE_IN_SCRIPT: Error =
    text("ERR SWAPDB is not allowed from a script in a transaction");
pub(in crate::dispatch) const NO_EXCHANGE: Error = text("ERR a user with a namespace exchanges no databases");
pub(in crate::dispatch) const KEY_TOO_LONG_HERE: Error = text(
    "ERR key is too long for a value of this length (250 bytes at most, with the namespace of the user, or 246 in a \
     database other than 0)",
);
pub(in crate::dispatch) const KEY_TOO_LONG: Error = text("ERR key is too long (65536 bytes at most)");
pub(in crate::dispatch) const INVALID_CURSOR: Error = text("ERR invalid cursor");
pub(in crate::dispatch) const EXEC_WITHOUT_MULTI: Error = text("ERR EXEC without MULTI");
pub(in crate::dispatch) const DISCARD_WITHOUT_MULTI: Error = text("ERR DISCARD without MULTI");
pub(in crate::dispatch) const EXEC_ABORT: Error =
    text("EXECABORT Transaction discarded because of previous errors.");
pub(in crate::dispatch) const TRANSACTION_TOO_LARGE: Error =
    text("ERR the transaction is too large; connection buffers are a sixteenth of -m");
pub(in crate::dispatch) const TOO_MANY_WATCHED: Error =
    text("ERR the watched keys do not fit into the memory for connection buffers");
pub(in crate::dispatch) const REPLIES_TOO_LARGE: Error =
    text("OOM the replies of the transaction do not fit into the memory for connection buffers");
pub(in crate::dispatch) const KEYS_ABOVE_ARGS: Error =
    text("ERR Number of keys can't be greater than number of args");
pub(in crate::dispatch) const NEGATIVE_KEYS: Error = text("ERR Number of keys can't be negative");
pub(in crate::dispatch) const NO_SCRIPT: Error = text("NOSCRIPT No matching script.");
pub(in crate::dispatch) const NO_SCRIPT_RUNS: Error = text("NOTBUSY No scripts in execution right now.");
pub(in crate::dispatch) const NO_DEBUGGING: Error = text("ERR Larder debugs no scripts");
pub(in crate::dispatch) const NOT_ON_CLUSTER: Error =
    text("ERR Can not run script on cluster, 'no-cluster' flag is set.");
pub(in crate::dispatch) const SCRIPT_FLUSH: Error = text("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
pub(in crate::dispatch) const SCRIPTS_TOO_LARGE: Error =
    text("OOM the scripts do not fit into the memory for connection buffers (SCRIPT FLUSH forgets them)");
pub(in crate::dispatch) const SCRIPT_TOO_LARGE: Error = text(
    "OOM the script was stopped: it needs more memory than a request may have, or than there is for connection \
     buffers (a 64th of -m, and 16 MiB, at most)",
);
pub(in crate::dispatch) const UNKNOWN_IN_SCRIPT: Error = text("ERR Unknown Redis command called from script");
pub(in crate::dispatch) const ARITY_IN_SCRIPT: Error =
    text("ERR Wrong number of args calling Redis command from script");
pub(in crate::dispatch) const NOT_IN_SCRIPT: Error =
    text("ERR This Redis command is not allowed from script");
pub(in crate::dispatch) const WRITES_IN_SCRIPT: Error =
    text("ERR Write commands are not allowed from read-only scripts.");
pub(in crate::dispatch) const ELSEWHERE_IN_SCRIPT: Error =
    text("ERR Script attempted to access a non local key in a cluster node");
pub(in crate::dispatch) const ON_FLASH_IN_SCRIPT: Error =
    text("ERR the item is on flash and cannot be waited for: name its key among the keys of the script");
pub(in crate::dispatch) const LISTING_IN_SCRIPT: Error =
    text("ERR the keys cannot be listed within the time of a script (--script-ms); use SCAN outside of it");
pub(in crate::dispatch) const NO_REWRITE: Error = text("ERR The server does not write its settings file");
pub(in crate::dispatch) const NO_SHUTDOWN: Error = text("ERR No shutdown in progress.");
pub(in crate::dispatch) const TIMEOUT: Error = text("ERR timeout is not an integer or out of range");
pub(in crate::dispatch) const NEGATIVE_TIMEOUT: Error = text("ERR timeout is negative");
pub(in crate::dispatch) const SLOW_COUNT: Error = text("ERR count should be greater than or equal to -1");
pub(in crate::dispatch) const NO_VALUES: Error = text("ERR NOVALUES option can only be used in HSCAN");
pub(in crate::dispatch) const NO_SCORES: Error = text("ERR NOSCORES option can only be used in ZSCAN");
pub(in crate::dispatch) const KEY_COUNT: Error = text("ERR Invalid number of keys");
pub(in crate::dispatch) const PREFIX_WITHOUT_BROADCAST: Error =
    text("ERR PREFIX option requires BCAST mode to be enabled");
pub(in crate::dispatch) const SWITCHED_BROADCAST: Error = text(
    "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a \
     different mode.",
);
pub(in crate::dispatch) const OPT_WITH_BROADCAST: Error =
    text("ERR OPTIN and OPTOUT are not compatible with BCAST");
pub(in crate::dispatch) const OPT_BOTH: Error = text("ERR You can't specify both OPTIN mode and OPTOUT mode");
pub(in crate::dispatch) const SWITCHED_OPT: Error = text(
    "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a \
     different mode.",
);
pub(in crate::dispatch) const REDIRECTED_TWICE: Error =
    text("ERR A client can only redirect to a single other client");
pub(in crate::dispatch) const NO_REDIRECT: Error =
    text("ERR The client ID you want redirect to does not exist");
pub(in crate::dispatch) const NO_CACHING: Error = text(
    "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
);
pub(in crate::dispatch) const CACHING_YES: Error =
    text("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
pub(in crate::dispatch) const CACHING_NO: Error =
    text("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");
pub(in crate::dispatch) const TOO_MANY_TRACKERS: Error =
    text("ERR too many connections track keys (32767 at most)");
pub(in crate::dispatch) const TOO_MANY_PREFIXES_TRACKED: Error =
    text("ERR too many prefixes (256 for a connection and 10000 for all, of 250 bytes, at most)");
pub(in crate::dispatch) const TOO_MANY_PATTERNS: Error =
    text("ERR too many patterns are subscribed to (4096 of all connections)");
pub(in crate::dispatch) const CHANNEL_TOO_LONG: Error =
    text("ERR the name of a channel has 4096 bytes at most");
pub(in crate::dispatch) const TOO_MANY_CHANNELS: Error =
    text("ERR the names of the channels do not fit into the memory for connection buffers");
pub(in crate::dispatch) const NO_PAUSE: Error =
    text("ERR Larder pauses no clients: to move them to another server, stop this one with SIGUSR1");
pub(in crate::dispatch) const NO_AUTH: Error = text("NOAUTH Authentication required.");
pub(in crate::dispatch) const WRONG_PASSWORD: Error =
    text("WRONGPASS invalid username-password pair or user is disabled.");
pub(in crate::dispatch) const NO_PASSWORD_SET: Error = text(
    "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
     configuration is correct?",
);
pub(in crate::dispatch) const HELLO_NO_AUTH: Error = text(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
     option can be used to authenticate the client and select the RESP protocol version at the same time",
);
pub(in crate::dispatch) const NO_PROTO: Error = text("NOPROTO unsupported protocol version");
pub(in crate::dispatch) const PROTO_NOT_INTEGER: Error =
    text("ERR Protocol version is not an integer or out of range");
pub(in crate::dispatch) const FLUSH_DISABLED: Error = text("ERR flushing is disabled (-F)");
pub(in crate::dispatch) const BAD_PREFIX: Error =
    text("ERR a prefix has 1 to 219 bytes; FLUSHALL deletes all keys");
pub(in crate::dispatch) const TOO_MANY_PREFIXES: Error =
    text("ERR too many prefixes are being deleted: try again, or delete a shorter prefix");
pub(in crate::dispatch) const KEYS_DISABLED: Error = text("ERR listing keys is disabled (-X)");
pub(in crate::dispatch) const PATTERN_TOO_LONG: Error =
    text("ERR the pattern is too long (1024 bytes at most)");
pub(in crate::dispatch) const TOO_MANY_KEYS: Error =
    text("ERR the keys do not fit into the memory for connection buffers; use SCAN");
pub(in crate::dispatch) const CLUSTER_DISABLED: Error =
    text("ERR This instance has cluster support disabled");
pub(in crate::dispatch) const CROSS_SLOT: Error =
    text("CROSSSLOT Keys in request don't hash to the same slot");
pub(in crate::dispatch) const SLOT_NOT_SERVED: Error = text("CLUSTERDOWN Hash slot not served");
pub(in crate::dispatch) const INVALID_SLOT: Error = text("ERR Invalid or out of range slot");
pub(in crate::dispatch) const SHUTDOWN_DISABLED: Error =
    text("ERR SHUTDOWN is disabled; start the server with -A to allow it");

const fn text(text: &'static str) -> Error {
    Cow::Borrowed(text.as_bytes())
}

/// An error that is made of a text.
pub(in crate::dispatch) fn made(text: impl Into<Vec<u8>>) -> Error {
    Cow::Owned(text.into())
}

/// An error that repeats a word of the request, up to its first NUL byte.
pub(in crate::dispatch) fn about(before: &str, word: &[u8], behind: &str) -> Error {
    Cow::Owned([before.as_bytes(), text_of(word), behind.as_bytes()].concat())
}

/// A word up to its first NUL byte.
fn text_of(word: &[u8]) -> &[u8] {
    word.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The number of arguments is wrong.
pub(in crate::dispatch) fn wrong_arity(command: &Command) -> Error {
    made(format!("ERR wrong number of arguments for '{}' command", command.full_name()))
}

/// A command on several sorted sets has none.
pub(in crate::dispatch) fn no_input_key(command: &Command) -> Error {
    made(format!("ERR at least 1 input key is needed for '{}' command", command.name))
}

/// Whether an error says that the keys are not served here.
pub(in crate::dispatch) fn is_redirection(error: &[u8]) -> bool {
    [&b"MOVED "[..], b"CROSSSLOT ", b"CLUSTERDOWN "].iter().any(|code| error.starts_with(code))
}

/// `EXEC` itself is refused, and with it what was queued.
pub(in crate::dispatch) fn exec_aborted(why: &[u8]) -> Error {
    let why = why.strip_prefix(b"ERR ").unwrap_or(why);
    Cow::Owned([&b"EXECABORT Transaction discarded because of: "[..], why].concat())
}

/// The expiry is not positive, or too far away.
pub(in crate::dispatch) fn invalid_expiry(command: &Command) -> Error {
    made(format!("ERR invalid expire time in '{}' command", command.name))
}

/// There is no such command.
pub(in crate::dispatch) fn unknown_command(mut args: Args<'_>) -> Error {
    let name = args.next().unwrap_or_default();
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(cut(name));
    if let Some(why) = absence(name) {
        text.extend_from_slice(b"': ");
        text.extend_from_slice(why.as_bytes());
        return Cow::Owned(text);
    }
    text.extend_from_slice(b"', with args beginning with: ");
    let before = text.len();
    for argument in args {
        if text.len() - before >= REPEATED_BYTES_MAX {
            break;
        }
        text.push(b'\'');
        text.extend_from_slice(cut(argument));
        text.extend_from_slice(b"' ");
    }
    Cow::Owned(text)
}

/// A script ran too long.
pub(in crate::dispatch) fn script_too_long(ms: u32) -> Error {
    made(format!("ERR the script was stopped: it took more than {ms} ms (--script-ms)"))
}

/// There is no such command below this one.
pub(in crate::dispatch) fn unknown_subcommand(above: &Command, name: &[u8]) -> Error {
    let help = above.name.to_uppercase();
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend_from_slice(cut(name));
    text.extend_from_slice(format!("'. Try {help} HELP.").as_bytes());
    Cow::Owned(text)
}

/// There is such a subcommand, but not with this number of arguments.
pub(in crate::dispatch) fn wrong_subcommand(above: &str, name: &str) -> Error {
    made(format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try {above} HELP."))
}

/// The command may not be part of a transaction.
pub(in crate::dispatch) fn not_in_transaction(command: &Command) -> Error {
    made(format!("ERR Command '{}' not allowed inside a transaction", command.full_name()))
}

/// A connection of RESP2 that has subscribed to something sends something else.
pub(in crate::dispatch) fn confined(command: &Command) -> Error {
    made(format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
         context",
        command.full_name()
    ))
}

/// A message is longer than those who hear it may have to keep.
pub(in crate::dispatch) fn message_too_long(most: usize) -> Error {
    made(format!("ERR the message is too long ({most} bytes at most)"))
}

/// A user who may only read sends something else.
pub(in crate::dispatch) fn not_permitted(command: &Command) -> Error {
    made(format!(
        "NOPERM this user may only read, and has no permissions to run the '{}' command",
        command.full_name()
    ))
}

/// A user who has a namespace sends something else than what is about the user's own keys.
pub(in crate::dispatch) fn about_others(command: &Command) -> Error {
    made(format!(
        "NOPERM this user has a namespace, and the '{}' command is about the whole server",
        command.full_name()
    ))
}

/// The request breaks the rules of the wire.
pub(in crate::dispatch) fn protocol_error(fault: Fault, request_bytes_max: usize) -> Error {
    let why = match fault {
        Fault::TooBigInline => "too big inline request",
        Fault::UnbalancedQuotes => "unbalanced quotes in request",
        Fault::TooBigCount => "too big mbulk count string",
        Fault::InvalidCount => "invalid multibulk length",
        Fault::UnauthenticatedCount => "unauthenticated multibulk length",
        Fault::TooBigLength => "too big bulk count string",
        Fault::InvalidLineEnd => "invalid CRLF in request",
        Fault::InvalidLength => "invalid bulk length",
        Fault::UnauthenticatedLength => "unauthenticated bulk length",
        Fault::ExpectedBulk(found) => {
            let mut text = b"ERR Protocol error: expected '$', got '".to_vec();
            text.push(found);
            text.push(b'\'');
            return Cow::Owned(text);
        }
        Fault::TooLarge => {
            let text = format!(
                "ERR Protocol error: a request of more than {request_bytes_max} bytes; connection buffers are a \
                 sixteenth of -m"
            );
            return made(text);
        }
    };
    made(format!("ERR Protocol error: {why}"))
}

/// As much of a text as an error repeats.
fn cut(text: &[u8]) -> &[u8] {
    text_of(&text[..text.len().min(REPEATED_BYTES_MAX)])
}
