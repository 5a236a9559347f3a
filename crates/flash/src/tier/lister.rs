//! The thread `flash-list`: it walks over the items of the tier for those who must not wait for the device.

use super::status::{NAP, Status};
use super::walk::{Place, Walk};
use crate::item::Listed;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// What a step of a walk has come to: the items, and the place to go on from; `None` at the end.
type Step = (Vec<Listed>, Option<Place>);

#[derive(Default)]
struct Answer {
    step: Mutex<Option<Step>>,
    is_there: Condvar,
}

impl Answer {
    fn step(&self) -> MutexGuard<'_, Option<Step>> {
        self.step.lock().expect("no panic under this lock")
    }

    fn give(&self, step: Step) {
        *self.step() = Some(step);
        self.is_there.notify_one();
    }
}

/// A step of a walk that was begun.
pub struct Listing(Arc<Answer>);

impl Listing {
    /// The items, and the place to go on from, which is `None` at the end. Waits for them so long; `None` = they are
    /// not there yet. Once they were taken there are none.
    pub fn take(&self, wait: Duration) -> Option<(Vec<Listed>, Option<Place>)> {
        let waits = |step: &mut Option<Step>| step.is_none();
        let waited = self.0.is_there.wait_timeout_while(self.0.step(), wait, waits);
        waited.expect("no panic under this lock").0.take()
    }
}

/// A step that somebody waits for.
struct Order {
    from: Place,
    least: usize,
    answer: Arc<Answer>,
}

#[derive(Default)]
struct Orders {
    waiting: VecDeque<Order>,
    /// A thread carries them out.
    is_served: bool,
}

/// Steps of walks that wait for the thread.
pub(crate) struct Lister {
    walk: Walk,
    orders: Mutex<Orders>,
    has_news: Condvar,
}

impl Lister {
    pub(crate) fn new(walk: Walk) -> Lister {
        Lister { walk, orders: Mutex::default(), has_news: Condvar::new() }
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().expect("no panic under this lock")
    }

    pub(crate) fn walk(&self) -> &Walk {
        &self.walk
    }

    /// Begins a step. While no thread serves, the step is taken at once.
    pub(crate) fn begin(&self, from: Place, least: usize) -> Listing {
        let answer = Arc::new(Answer::default());
        let order = Order { from, least, answer: answer.clone() };
        let mut orders = self.orders();
        if orders.is_served {
            orders.waiting.push_back(order);
            self.has_news.notify_one();
        } else {
            drop(orders);
            self.carry_out(&order);
        }
        Listing(answer)
    }

    fn carry_out(&self, order: &Order) {
        let mut items = Vec::new();
        let next = self.walk.list(order.from, order.least, &mut items);
        order.answer.give((items, next));
    }

    /// Carries out steps until the tier stops.
    pub(crate) fn serve(&self, status: &Status) {
        self.orders().is_served = true;
        while !status.is_stopping() {
            let orders = self.orders();
            let waits = |orders: &mut Orders| orders.waiting.is_empty();
            let waited = self.has_news.wait_timeout_while(orders, NAP, waits);
            let order = waited.expect("no panic under this lock").0.waiting.pop_front();
            if let Some(order) = order {
                self.carry_out(&order);
            }
        }
        let mut orders = self.orders();
        orders.is_served = false;
        // Those who wait are ending as well.
        orders.waiting.drain(..).for_each(|order| order.answer.give((Vec::new(), None)));
    }
}
