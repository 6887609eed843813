//! The order of answers. Whatever is asked of one jail is answered in the order of asking, though some of it takes longer
//! than what was asked after it: a client tells answers about one jail apart by their order.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;

use super::protocol::{Answer, JailId};

/// An answer with its descriptors.
pub(super) type Given = (Answer, Vec<OwnedFd>);

/// A place in the line of one jail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) name: JailId,
    number: u64,
}

#[derive(Debug, Default)]
pub(super) struct Answers {
    lines: HashMap<JailId, VecDeque<(u64, Option<Given>)>>,
    next: u64,
}

impl Answers {
    /// A place behind everything that was asked of this jail before.
    pub(super) fn take_place(&mut self, name: &str) -> Ticket {
        self.next += 1;
        self.lines.entry(name.to_owned()).or_default().push_back((self.next, None));
        Ticket { name: name.to_owned(), number: self.next }
    }

    /// The answer for a place is there. Returns what may be said now, which is nothing while another is due before it.
    pub(super) fn give(&mut self, ticket: &Ticket, given: Given) -> Vec<Given> {
        let Some(line) = self.lines.get_mut(&ticket.name) else { return Vec::new() };
        if let Some(place) = line.iter_mut().find(|(number, _)| *number == ticket.number) {
            place.1 = Some(given);
        }
        let ready = line.iter().take_while(|(_, given)| given.is_some()).count();
        let now = line.drain(..ready).filter_map(|(_, given)| given).collect();
        if line.is_empty() {
            self.lines.remove(&ticket.name);
        }
        now
    }

    /// Who asked is gone.
    pub(super) fn forget(&mut self) {
        self.lines.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(name: &str) -> Given {
        (Answer::Done { name: name.to_owned() }, Vec::new())
    }

    #[test]
    fn a_later_answer_waits_for_an_earlier_one_of_the_same_jail_only() {
        let mut answers = Answers::default();
        let (first, second) = (answers.take_place("a"), answers.take_place("a"));
        let other = answers.take_place("b");
        let adopted = Answer::Adopted { name: "a".to_owned(), meter: None };
        assert!(answers.give(&second, (adopted, Vec::new())).is_empty());
        assert_eq!(answers.give(&other, done("b")).len(), 1);
        let said = answers.give(&first, done("a"));
        assert!(matches!(said[0].0, Answer::Done { .. }) && matches!(said[1].0, Answer::Adopted { .. }));
        assert!(answers.lines.is_empty());
    }

    #[test]
    fn an_answer_to_somebody_who_is_gone_is_not_said() {
        let mut answers = Answers::default();
        let ticket = answers.take_place("a");
        answers.forget();
        let newer = answers.take_place("a");
        assert!(answers.give(&ticket, done("a")).is_empty());
        assert_eq!(answers.give(&newer, done("a")).len(), 1);
    }
}
