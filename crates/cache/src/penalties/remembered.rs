//! What an item remembers of its penalty: the subclass, in three bits of its state.

use larder_allocation::Subclass;
use larder_item::State;

/// The penalty subclass of an item with this state. `None`: the penalty is unknown.
#[inline]
pub(crate) fn remembered(state: State) -> Option<Subclass> {
    state.penalty().and_then(Subclass::from_number)
}

/// The same state with this penalty subclass.
#[inline]
pub(crate) fn with_penalty(state: State, subclass: Option<Subclass>) -> State {
    state.with_penalty(subclass.map(|subclass| subclass.number() as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subclass_comes_back() {
        let state = State::at(9, State::STALE);
        assert_eq!(remembered(state), None);
        for number in 0..Subclass::COUNT as u8 {
            let subclass = Subclass::from_number(number);
            assert!(subclass.is_some());
            assert_eq!(remembered(with_penalty(state, subclass)), subclass);
        }
        assert_eq!(remembered(state.with_penalty(Some(Subclass::COUNT as u8))), None, "no such subclass");
    }
}
