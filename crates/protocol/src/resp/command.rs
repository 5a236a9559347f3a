//! What a command is, and how one is found by its name.
//!
//! One table has everything that is known of a command without executing it: how many arguments it has, which of them
//! are keys, what `COMMAND` and `COMMAND DOCS` answer. The rows are in `commands/`. Arities, flags, key positions and
//! tips are those of Redis, because clients act on them.

use super::args::{Args, decimal};

/// A command, or a subcommand such as `CLIENT ID`.
#[derive(Debug)]
pub struct Command {
    /// Which command this is.
    pub id: Id,
    /// The name in lower case. A subcommand has the name of its own word alone.
    pub name: &'static str,
    /// How many arguments the command has, its name included (and the word of a subcommand). A negative number is the
    /// least: -3 = three or more.
    pub arity: i8,
    /// What kind of command it is.
    pub flags: u32,
    /// Which arguments are keys.
    pub keys: Keys,
    /// The argument that may arrive in parts, as an index; 0 = none.
    pub streams: u8,
    /// The categories of Redis's access lists that do not follow from the flags: `keyspace`, `string`, ...
    pub category: &'static str,
    /// What happens to each key, in Redis's words. One text for each range of keys: `RO access`.
    pub key_access: &'static [&'static str],
    /// What proxies and cluster clients want to know, in Redis's words.
    pub tips: &'static [&'static str],
    /// The group of the documentation.
    pub group: &'static str,
    /// The version of Redis or Valkey that had the command first.
    pub since: &'static str,
    /// What it costs.
    pub complexity: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// The arguments behind the name: words in capitals stand for themselves, `[]` is optional, `|` is one of several,
    /// `...` may be repeated. A name says what kind of argument it is, unless the kind follows it: `min:double`.
    pub syntax: &'static str,
    /// The commands below this one.
    pub subcommands: &'static [Command],
}

/// The flags of [`Command::flags`], in the order in which `COMMAND` shows them.
pub mod flags {
    /// It may change items.
    pub const WRITE: u32 = 1;
    /// It changes nothing.
    pub const READONLY: u32 = 1 << 1;
    /// It may need memory.
    pub const DENYOOM: u32 = 1 << 2;
    /// It is for administrators.
    pub const ADMIN: u32 = 1 << 3;
    /// Scripts may not call it.
    pub const NOSCRIPT: u32 = 1 << 4;
    /// It waits for something.
    pub const BLOCKING: u32 = 1 << 5;
    /// It is answered while data is loaded.
    pub const LOADING: u32 = 1 << 6;
    /// It is answered by a replica that lags behind.
    pub const STALE: u32 = 1 << 7;
    /// It is not in the slow log.
    pub const SKIP_SLOWLOG: u32 = 1 << 8;
    /// It takes constant or logarithmic time.
    pub const FAST: u32 = 1 << 9;
    /// A client may send it before it has logged in.
    pub const NO_AUTH: u32 = 1 << 10;
    /// It may not be part of a transaction.
    pub const NO_MULTI: u32 = 1 << 11;
    /// It is answered while a script runs.
    pub const ALLOW_BUSY: u32 = 1 << 12;
    /// Its first argument is no key though it has keys.
    pub const NO_MANDATORY_KEYS: u32 = 1 << 13;
    /// Where its keys are, only the request says.
    pub const MOVABLEKEYS: u32 = 1 << 14;
    /// It changes the connection, or depends on it: what follows it in a pipeline is read after it is executed.
    pub const SESSION: u32 = 1 << 15;
    /// It is about hashes, sets or sorted sets.
    pub const COLLECTION: u32 = 1 << 16;

    /// The flags that clients see, with their names. That of channels follows from the category.
    pub const NAMES: [(u32, &str); 16] = [
        (WRITE, "write"),
        (READONLY, "readonly"),
        (DENYOOM, "denyoom"),
        (ADMIN, "admin"),
        (0, "pubsub"),
        (NOSCRIPT, "noscript"),
        (BLOCKING, "blocking"),
        (LOADING, "loading"),
        (STALE, "stale"),
        (SKIP_SLOWLOG, "skip_slowlog"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
        (NO_MULTI, "no_multi"),
        (NO_MANDATORY_KEYS, "no_mandatory_keys"),
        (ALLOW_BUSY, "allow_busy"),
        (MOVABLEKEYS, "movablekeys"),
    ];
}

/// Which arguments are keys: every `step`-th from `first` to `last`, counted from the name as 0. A negative `last` is
/// counted from the end: -1 is the last argument. No keys: all are 0. Where the request itself says how many keys it
/// has ([`Keys::COUNTED`]), all are 0 but `number`, unless there is a key before that ([`Keys::STORED_NUMBERED`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The first key.
    pub first: i8,
    /// The last key.
    pub last: i8,
    /// The distance between keys.
    pub step: i8,
    /// The argument that says how many keys follow it; 0 = none does.
    pub number: i8,
}

impl Keys {
    /// No argument is a key.
    pub const NONE: Keys = Keys { first: 0, last: 0, step: 0, number: 0 };
    /// The first argument is the key.
    pub const ONE: Keys = Keys { first: 1, last: 1, step: 1, number: 0 };
    /// All arguments are keys.
    pub const ALL: Keys = Keys { first: 1, last: -1, step: 1, number: 0 };
    /// Keys and values by turns.
    pub const PAIRS: Keys = Keys { first: 1, last: -1, step: 2, number: 0 };
    /// The first two arguments are keys.
    pub const TWO: Keys = Keys { first: 1, last: 2, step: 1, number: 0 };
    /// The argument behind the word of a subcommand.
    pub const SUB: Keys = Keys { first: 2, last: 2, step: 1, number: 0 };

    /// The second argument says how many keys follow it.
    pub const COUNTED: Keys = Keys { first: 0, last: 0, step: 0, number: 2 };
    /// The first argument says how many keys follow it.
    pub const NUMBERED: Keys = Keys { first: 0, last: 0, step: 0, number: 1 };
    /// The first argument is a key, and the second says how many more follow it.
    pub const STORED_NUMBERED: Keys = Keys { first: 1, last: 1, step: 1, number: 2 };

    /// How many keys a request says that it has; 0 if it does not say, or not in numbers.
    fn counted(self, mut args: Args<'_>) -> usize {
        if self.number <= 0 {
            return 0;
        }
        let number = args.nth(self.number as usize).and_then(decimal);
        number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0).min(args.len())
    }

    /// The keys among the arguments of a request: first those that always stand in the same place, then those whose
    /// number the request says.
    pub fn of<'a>(self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> + Clone {
        let counted = args.skip(self.number.max(0) as usize + 1).take(self.counted(args));
        let last = if self.last < 0 { args.len() as isize + self.last as isize } else { self.last as isize };
        let (first, step) = (self.first.max(0) as usize, self.step.max(1) as usize);
        let count =
            if self.step == 0 { 0 } else { usize::try_from(last + 1).unwrap_or(0).saturating_sub(first) };
        args.skip(first).take(count).step_by(step).chain(counted)
    }

    /// Whether no argument is a key.
    #[inline]
    pub fn are_none(self) -> bool {
        self.step == 0 && self.number == 0
    }

    /// Says of the argument at a place, the name of the command being at place 0, whether it is a key of a request with
    /// `count` arguments. `args` = those that are here. The keys of a script are none here.
    pub fn places(self, args: Args<'_>, count: usize) -> impl Fn(usize) -> bool {
        let (first, step) = (isize::from(self.first), isize::from(self.step));
        let last =
            if self.last < 0 { count as isize + isize::from(self.last) } else { isize::from(self.last) };
        let behind = if self == Keys::COUNTED { 0 } else { self.number.max(0) as usize };
        let counted = behind + 1..behind + 1 + if behind > 0 { self.counted(args) } else { 0 };
        move |place| {
            let fixed = step > 0 && (first..=last).contains(&(place as isize));
            fixed && (place as isize - first) % step == 0 || counted.contains(&place)
        }
    }
}

impl Command {
    /// A row with the fields that most commands of a group share.
    pub(super) const ROW: Command = Command {
        id: Id::Get,
        name: "",
        arity: 1,
        flags: 0,
        keys: Keys::NONE,
        streams: 0,
        category: "",
        key_access: &[],
        tips: &[],
        group: "",
        since: "1.0.0",
        complexity: "O(1)",
        summary: "",
        syntax: "",
        subcommands: &[],
    };

    /// Whether the command has this flag.
    #[inline]
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether it may have `count` arguments, its name included.
    #[inline]
    pub fn takes(&self, count: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity > 0 { count == arity } else { count >= arity }
    }

    /// The subcommand with this name.
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Command> {
        self.subcommands.iter().find(|sub| sub.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The flags as `COMMAND` shows them.
    pub fn flag_names(&self) -> impl Iterator<Item = &'static str> {
        let (own, category) = (self.flags, self.category);
        let has = move |(flag, name): &(u32, &str)| own & flag != 0 || *flag == 0 && *name == category;
        flags::NAMES.into_iter().filter(has).map(|(_, name)| name)
    }

    /// The categories of Redis's access lists, without their `@`, in Redis's order.
    pub fn categories(&self) -> Vec<&'static str> {
        use flags::{ADMIN, BLOCKING, FAST, READONLY, WRITE};
        let is_keyspace = self.category == "keyspace";
        let is_late = matches!(self.category, "connection" | "transaction" | "dangerous" | "");
        let all = [
            (is_keyspace, "keyspace"),
            (self.has(READONLY) && self.category != "connection", "read"),
            (self.has(WRITE), "write"),
            (!is_keyspace && !is_late, self.category),
            (self.has(ADMIN), "admin"),
            (self.has(FAST), "fast"),
            (!self.has(FAST), "slow"),
            (self.has(BLOCKING), "blocking"),
            (self.has(ADMIN) || self.is_dangerous(), "dangerous"),
            (matches!(self.category, "connection" | "transaction"), self.category),
        ];
        all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, name)| name).collect()
    }

    fn is_dangerous(&self) -> bool {
        use Id::{Flushall, Flushdb, Flushprefix, Info, Keys, Role, Swapdb};
        self.category == "dangerous"
            || matches!(self.id, Keys | Flushdb | Flushall | Flushprefix | Info | Role | Swapdb)
    }
}

/// Every command and subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
#[expect(missing_docs, reason = "each is named like its command, and its row says what it does")]
pub enum Id {
    Acl,
    AclWhoami,
    Append,
    Asking,
    Auth,
    Bitcount,
    Bitpos,
    Client,
    ClientCaching,
    ClientGetname,
    ClientGetredir,
    ClientHelp,
    ClientId,
    ClientInfo,
    ClientKill,
    ClientList,
    ClientNoEvict,
    ClientNoTouch,
    ClientPause,
    ClientReply,
    ClientSetinfo,
    ClientSetname,
    ClientTracking,
    ClientTrackinginfo,
    ClientUnblock,
    ClientUnpause,
    Cluster,
    ClusterCountkeysinslot,
    ClusterGetkeysinslot,
    ClusterHelp,
    ClusterInfo,
    ClusterKeyslot,
    ClusterLinks,
    ClusterMyid,
    ClusterMyshardid,
    ClusterNodes,
    ClusterReplicas,
    ClusterShards,
    ClusterSlots,
    Command,
    CommandCount,
    CommandDocs,
    CommandGetkeys,
    CommandGetkeysandflags,
    CommandHelp,
    CommandInfo,
    CommandList,
    Config,
    ConfigGet,
    ConfigHelp,
    ConfigResetstat,
    ConfigRewrite,
    ConfigSet,
    Copy,
    Dbsize,
    Decr,
    Decrby,
    Del,
    Delex,
    Delifeq,
    Digest,
    Discard,
    Echo,
    Eval,
    EvalRo,
    Evalsha,
    EvalshaRo,
    Exec,
    Exists,
    Expire,
    Expireat,
    Expiretime,
    Flushall,
    Flushdb,
    Flushprefix,
    Function,
    FunctionFlush,
    FunctionList,
    Get,
    Getbit,
    Getdel,
    Getex,
    Getrange,
    Getset,
    Hdel,
    Hello,
    Hexists,
    Hexpire,
    Hexpireat,
    Hexpiretime,
    Hget,
    Hgetall,
    Hgetdel,
    Hgetex,
    Hincrby,
    Hincrbyfloat,
    Hkeys,
    Hlen,
    Hmget,
    Hmset,
    Hpersist,
    Hpexpire,
    Hpexpireat,
    Hpexpiretime,
    Hpttl,
    Hrandfield,
    Hscan,
    Hset,
    Hsetex,
    Hsetnx,
    Hstrlen,
    Httl,
    Hvals,
    Incr,
    Incrby,
    Incrbyfloat,
    Info,
    Keys,
    Larder,
    LarderHelp,
    LarderItem,
    Lastsave,
    Latency,
    LatencyDoctor,
    LatencyGraph,
    LatencyHelp,
    LatencyHistogram,
    LatencyHistory,
    LatencyLatest,
    LatencyReset,
    Lolwut,
    Memory,
    MemoryDoctor,
    MemoryHelp,
    MemoryMallocStats,
    MemoryPurge,
    MemoryStats,
    MemoryUsage,
    Mget,
    Move,
    Mset,
    Msetnx,
    Multi,
    Object,
    ObjectEncoding,
    ObjectFreq,
    ObjectHelp,
    ObjectIdletime,
    ObjectRefcount,
    Persist,
    Pexpire,
    Pexpireat,
    Pexpiretime,
    Ping,
    Psetex,
    Psubscribe,
    Pttl,
    Publish,
    Pubsub,
    PubsubChannels,
    PubsubHelp,
    PubsubNumpat,
    PubsubNumsub,
    PubsubShardchannels,
    PubsubShardnumsub,
    Punsubscribe,
    Quit,
    Randomkey,
    Readonly,
    Readwrite,
    Rename,
    Renamenx,
    Reset,
    Role,
    Sadd,
    Scan,
    Scard,
    Script,
    ScriptDebug,
    ScriptExists,
    ScriptFlush,
    ScriptHelp,
    ScriptKill,
    ScriptLoad,
    ScriptShow,
    Sdiff,
    Sdiffstore,
    Select,
    Set,
    Setbit,
    Setex,
    Setnx,
    Setrange,
    Shutdown,
    Sinter,
    Sintercard,
    Sinterstore,
    Sismember,
    Slowlog,
    SlowlogGet,
    SlowlogHelp,
    SlowlogLen,
    SlowlogReset,
    Smembers,
    Smismember,
    Smove,
    Spop,
    Spublish,
    Srandmember,
    Srem,
    Sscan,
    Ssubscribe,
    Strlen,
    Subscribe,
    Substr,
    Sunion,
    Sunionstore,
    Sunsubscribe,
    Swapdb,
    Time,
    Touch,
    Ttl,
    Type,
    Unlink,
    Unsubscribe,
    Unwatch,
    Wait,
    Watch,
    Zadd,
    Zcard,
    Zcount,
    Zdiff,
    Zdiffstore,
    Zincrby,
    Zinter,
    Zintercard,
    Zinterstore,
    Zlexcount,
    Zmpop,
    Zmscore,
    Zpopmax,
    Zpopmin,
    Zrandmember,
    Zrange,
    Zrangebylex,
    Zrangebyscore,
    Zrangestore,
    Zrank,
    Zrem,
    Zremrangebylex,
    Zremrangebyrank,
    Zremrangebyscore,
    Zrevrange,
    Zrevrangebylex,
    Zrevrangebyscore,
    Zrevrank,
    Zscan,
    Zscore,
    Zunion,
    Zunionstore,
}

impl Id {
    /// How many commands and subcommands there are.
    pub const COUNT: usize = Id::Zunionstore as usize + 1;
}
