//! Sorted sets: members in the order of their scores.

use crate::resp::command::flags::{self, DENYOOM, FAST, MOVABLEKEYS};
use crate::resp::command::{Command, Id, Keys};

const READONLY: u32 = flags::READONLY | flags::COLLECTION;
const WRITE: u32 = flags::WRITE | flags::COLLECTION;

const SORTED_SET: Command =
    Command { category: "sortedset", group: "sorted-set", keys: Keys::ONE, since: "1.2.0", ..Command::ROW };
const READ: Command = Command {
    arity: -3,
    flags: READONLY | FAST,
    key_access: &["RO access"],
    syntax: "key member",
    ..SORTED_SET
};
const COUNT: Command = Command {
    arity: 4,
    syntax: "key min max",
    complexity: "O(log(N)) where N is the number of members of the sorted set.",
    ..READ
};
const STORE: Command = Command {
    arity: 4,
    flags: WRITE | DENYOOM | FAST,
    key_access: &["RW access update"],
    complexity: "O(log(N)) where N is the number of members of the sorted set.",
    ..SORTED_SET
};
const RANGE: Command = Command {
    arity: -4,
    flags: READONLY,
    syntax: "key min max [LIMIT <offset count>]",
    complexity: "O(log(N)+M) where N is the size of the sorted set and M how many members are returned.",
    ..READ
};
const REMOVE: Command = Command {
    arity: 4,
    flags: WRITE,
    key_access: &["RW delete"],
    syntax: "key min max",
    complexity: "O(log(N)+M) where N is the size of the sorted set and M how many members are removed.",
    ..SORTED_SET
};
const POP: Command = Command {
    arity: -2,
    flags: WRITE | FAST,
    key_access: &["RW access delete"],
    since: "5.0.0",
    syntax: "key [count]",
    complexity: "O(log(N)*M) where N is the size of the sorted set and M how many members are removed.",
    ..REMOVE
};
const SEVERAL: Command = Command {
    flags: READONLY | MOVABLEKEYS,
    keys: Keys::NUMBERED,
    since: "6.2.0",
    syntax: "numkeys key... [WEIGHTS weight...] [AGGREGATE <SUM|MIN|MAX>] [WITHSCORES]",
    ..READ
};
const INTO: Command = Command {
    arity: -4,
    flags: WRITE | DENYOOM | MOVABLEKEYS,
    keys: Keys::STORED_NUMBERED,
    since: "2.0.0",
    key_access: &["OW update", "RO access"],
    syntax: "destination numkeys key... [WEIGHTS weight...] [AGGREGATE <SUM|MIN|MAX>]",
    ..STORE
};

#[rustfmt::skip] // A row reads as a card.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        id: Id::Zadd, name: "zadd", arity: -4, syntax: "key [NX|XX] [GT|LT] [CH] [INCR] <score member>...",
        key_access: &["RW update"],
        complexity: "O(log(N)) for every member where N is the number of members of the sorted set.",
        summary: "Adds members with scores to a sorted set, or gives members that it has other scores.", ..STORE
    },
    Command {
        id: Id::Zincrby, name: "zincrby", syntax: "key increment member",
        summary: "Adds to the score of a member. A member that does not exist counts as 0.", ..STORE
    },
    Command {
        id: Id::Zcard, name: "zcard", arity: 2, syntax: "key", key_access: &["RO"],
        summary: "Returns how many members a sorted set has.", ..READ
    },
    Command {
        id: Id::Zscore, name: "zscore", arity: 3,
        summary: "Returns the score of a member.", ..READ
    },
    Command {
        id: Id::Zmscore, name: "zmscore", since: "6.2.0", syntax: "key member...",
        complexity: "O(N) where N is the number of members that are named.",
        summary: "Returns the scores of several members.", ..READ
    },
    Command {
        id: Id::Zrank, name: "zrank", since: "2.0.0", syntax: "key member [WITHSCORE]",
        complexity: "O(log(N)) where N is the number of members of the sorted set.",
        summary: "Returns how many members of a sorted set stand before a member.", ..READ
    },
    Command {
        id: Id::Zrevrank, name: "zrevrank", since: "2.0.0", syntax: "key member [WITHSCORE]",
        complexity: "O(log(N)) where N is the number of members of the sorted set.",
        summary: "Returns how many members of a sorted set stand behind a member.", ..READ
    },
    Command {
        id: Id::Zcount, name: "zcount", since: "2.0.0", syntax: "key min:double max:double",
        summary: "Counts the members whose scores are between two scores.", ..COUNT
    },
    Command {
        id: Id::Zlexcount, name: "zlexcount", since: "2.8.9",
        summary: "Counts the members between two texts, where all members have the same score.", ..COUNT
    },
    Command {
        id: Id::Zrandmember, name: "zrandmember", arity: -2, flags: READONLY, since: "6.2.0",
        syntax: "key [<count [WITHSCORES]>]", tips: &["nondeterministic_output"],
        complexity: "O(N) where N is the number of members that are returned.",
        summary: "Returns members of a sorted set by chance, with their scores if they are wanted.", ..READ
    },
    Command {
        id: Id::Zscan, name: "zscan", flags: READONLY, since: "2.8.0",
        syntax: "key cursor [MATCH pattern] [COUNT count] [NOSCORES]", tips: &["nondeterministic_output"],
        complexity: "O(1) for a call, O(N) for all of them where N is the number of members of the sorted set.",
        summary: "Returns members and their scores, those that match a pattern, in one reply.", ..READ
    },

    Command {
        id: Id::Zrange, name: "zrange",
        syntax: "key start:string stop:string [BYSCORE|BYLEX] [REV] [LIMIT <offset count>] [WITHSCORES]",
        summary: "Returns the members between two ranks, scores or texts.", ..RANGE
    },
    Command {
        id: Id::Zrangebyscore, name: "zrangebyscore", since: "1.0.5",
        syntax: "key min:double max:double [WITHSCORES] [LIMIT <offset count>]",
        summary: "Returns the members whose scores are between two scores.", ..RANGE
    },
    Command {
        id: Id::Zrangebylex, name: "zrangebylex", since: "2.8.9",
        summary: "Returns the members between two texts, where all members have the same score.", ..RANGE
    },
    Command {
        id: Id::Zrevrange, name: "zrevrange", syntax: "key start stop [WITHSCORES]",
        summary: "Returns the members between two ranks, which are counted from the highest score.", ..RANGE
    },
    Command {
        id: Id::Zrevrangebyscore, name: "zrevrangebyscore", since: "2.2.0",
        syntax: "key max:double min:double [WITHSCORES] [LIMIT <offset count>]",
        summary: "Returns the members whose scores are between two scores, the highest first.", ..RANGE
    },
    Command {
        id: Id::Zrevrangebylex, name: "zrevrangebylex", since: "2.8.9", syntax: "key max min [LIMIT <offset count>]",
        summary: "Returns the members between two texts, the last first, where all members have the same score.",
        ..RANGE
    },
    Command {
        id: Id::Zrangestore, name: "zrangestore", arity: -5, flags: WRITE | DENYOOM, keys: Keys::TWO, since: "6.2.0",
        syntax: "dst src min max [BYSCORE|BYLEX] [REV] [LIMIT <offset count>]",
        key_access: &["OW update", "RO access"],
        complexity: "O(log(N)+M) where N is the size of the sorted set and M how many members are stored.",
        summary: "Stores the members between two ranks, scores or texts as a sorted set of its own.", ..RANGE
    },

    Command {
        id: Id::Zrem, name: "zrem", arity: -3, flags: WRITE | FAST, syntax: "key member...",
        complexity: "O(M*log(N)) where N is the size of the sorted set and M the number of members that are named.",
        summary: "Removes members from a sorted set, and the sorted set with the last of them.", ..REMOVE
    },
    Command {
        id: Id::Zremrangebyrank, name: "zremrangebyrank", since: "2.0.0", syntax: "key start stop",
        summary: "Removes the members between two ranks.", ..REMOVE
    },
    Command {
        id: Id::Zremrangebyscore, name: "zremrangebyscore", syntax: "key min:double max:double",
        summary: "Removes the members whose scores are between two scores.", ..REMOVE
    },
    Command {
        id: Id::Zremrangebylex, name: "zremrangebylex", since: "2.8.9",
        summary: "Removes the members between two texts, where all members have the same score.", ..REMOVE
    },
    Command {
        id: Id::Zpopmin, name: "zpopmin",
        summary: "Returns the members with the lowest scores and removes them.", ..POP
    },
    Command {
        id: Id::Zpopmax, name: "zpopmax",
        summary: "Returns the members with the highest scores and removes them.", ..POP
    },
    Command {
        id: Id::Zmpop, name: "zmpop", arity: -4, flags: WRITE | MOVABLEKEYS, keys: Keys::NUMBERED, since: "7.0.0",
        syntax: "numkeys key... <MIN|MAX> [COUNT count]",
        complexity: "O(K)+O(M*log(N)) where K is the number of keys, N the size of the set, M how many are removed.",
        summary: "Returns members of the first sorted set that is not empty, and removes them.", ..POP
    },

    Command {
        id: Id::Zinter, name: "zinter",
        complexity: "O(N*K)+O(M*log(M)) where N is the size of the smallest of K sorted sets and M that of the result.",
        summary: "Returns the members that all of the sorted sets have.", ..SEVERAL
    },
    Command {
        id: Id::Zunion, name: "zunion",
        complexity: "O(N)+O(M*log(M)) where N is the size of all sets together and M that of the result.",
        summary: "Returns the members that any of the sorted sets has.", ..SEVERAL
    },
    Command {
        id: Id::Zdiff, name: "zdiff", syntax: "numkeys key... [WITHSCORES]",
        complexity: "O(L+(N-K)*log(N)) where L is the size of all sets, N that of the first, K that of the result.",
        summary: "Returns the members of the first sorted set that none of the others has.", ..SEVERAL
    },
    Command {
        id: Id::Zintercard, name: "zintercard", since: "7.0.0", syntax: "numkeys key... [LIMIT limit]",
        complexity: "O(N*K) where N is the size of the smallest sorted set and K the number of sorted sets.",
        summary: "Counts the members that all of the sorted sets have, up to a limit if one is given.", ..SEVERAL
    },
    Command {
        id: Id::Zinterstore, name: "zinterstore",
        complexity: "O(N*K)+O(M*log(M)) where N is the size of the smallest of K sorted sets and M that of the result.",
        summary: "Stores the members that all of the sorted sets have as a sorted set of its own.", ..INTO
    },
    Command {
        id: Id::Zunionstore, name: "zunionstore",
        complexity: "O(N)+O(M*log(M)) where N is the size of all sets together and M that of the result.",
        summary: "Stores the members that any of the sorted sets has as a sorted set of its own.", ..INTO
    },
    Command {
        id: Id::Zdiffstore, name: "zdiffstore", since: "6.2.0", syntax: "destination numkeys key...",
        complexity: "O(L+(N-K)*log(N)) where L is the size of all sets, N that of the first, K that of the result.",
        summary: "Stores the members of the first sorted set that none of the others has as a sorted set of its own.",
        ..INTO
    },
];
