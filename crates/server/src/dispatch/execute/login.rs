//! Logins of every protocol: who is admitted, and the delay of those who are not.
//!
//! An attempt that fails is answered after one to two seconds. Until then its connection waits, as one does that waits
//! for flash, and the worker serves others. The attempt stays in the connection's input and is looked at again when the
//! delay is over. So a delay costs no thread, and no memory but an entry in a list. A client that guesses can guess
//! once a second on each of its connections, whose number `-c` limits.

use super::Executor;
use crate::dispatch::progress::Progress;
use crate::dispatch::users::Rights;
use crate::io::ConnectionId;

/// Ticks, of about a second each, that a failed attempt waits for. The first may come at once.
const DELAY_TICKS: u64 = 2;

/// What came of an attempt to log in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::dispatch) enum Admission {
    /// The user may do this from now on.
    Admitted(Rights),
    /// The name or the password is wrong, or could not be read.
    Refused,
    /// The attempt is to be answered later. Nothing of it is consumed, and it comes again when the connection is woken.
    Later,
}

/// Connections whose attempts to log in have failed and are not answered yet.
#[derive(Default)]
pub(super) struct Delays {
    /// Ticks since the worker began.
    now: u64,
    /// Connections, and the tick at which each is woken, in the order of the ticks.
    waiting: Vec<(ConnectionId, u64)>,
}

impl Delays {
    /// The delay of a connection begins. Returns the tick at which the connection is woken, whether it waits by then or
    /// not.
    fn begin(&mut self, id: ConnectionId) -> u64 {
        let due = self.now + DELAY_TICKS;
        self.waiting.push((id, due));
        due
    }
}

impl Executor {
    /// Decides whether a user may log in. `None` = the client sent no name and password that can be read.
    pub(in crate::dispatch) fn log_in(
        &mut self,
        progress: &mut Progress,
        user: Option<(&[u8], &[u8])>,
    ) -> Admission {
        let counters = self.worker.counters();
        if let Some(rights) = user.and_then(|(name, password)| self.state.admit(name, password)) {
            progress.login_due = None;
            counters.auth_cmds.add(1);
            return Admission::Admitted(rights);
        }
        let due = *progress.login_due.get_or_insert_with(|| self.delays.begin(progress.id));
        if self.delays.now < due {
            progress.waits = true;
            return Admission::Later;
        }
        progress.login_due = None;
        counters.auth_cmds.add(1);
        counters.auth_errors.add(1);
        Admission::Refused
    }

    /// Decides whether a user may log in whose connection cannot wait. After an attempt that failed, others on the same
    /// connection are refused unseen for as long as the first would have had to wait.
    pub(in crate::dispatch) fn log_in_at_once(
        &mut self,
        progress: &mut Progress,
        (name, password): (&[u8], &[u8]),
    ) -> Admission {
        let counters = self.worker.counters();
        counters.auth_cmds.add(1);
        let is_due = progress.login_due.is_none_or(|due| due <= self.delays.now);
        match self.state.admit(name, password).filter(|_| is_due) {
            Some(rights) => {
                progress.login_due = None;
                Admission::Admitted(rights)
            }
            None => {
                if is_due {
                    progress.login_due = Some(self.delays.begin(progress.id));
                }
                counters.auth_errors.add(1);
                Admission::Refused
            }
        }
    }

    /// About a second has passed.
    pub(super) fn pass_delays(&mut self) {
        self.delays.now += 1;
    }

    /// Names the connections whose delay is over.
    pub(in crate::dispatch) fn wake_delayed(&mut self, wake: &mut Vec<ConnectionId>) {
        let Delays { now, waiting } = &mut self.delays;
        let over = waiting.iter().take_while(|(_, due)| due <= now).count();
        wake.extend(waiting.drain(..over).map(|(id, _)| id));
    }
}
