//! Sandboxes elsewhere that we are about to end.

/// A sandbox elsewhere that can be marked as one that we set about to end.
pub(crate) trait MayEnd {
    fn set_ending(&self, ending: bool);
}

/// One that we are about to end: programs that end meanwhile end with it. Dropped before it is done, it lives on.
pub(crate) struct Ending<P: MayEnd> {
    place: P,
    done: bool,
}

impl<P: MayEnd> Ending<P> {
    pub(crate) fn begin(place: P) -> Self {
        place.set_ending(true);
        Self { place, done: false }
    }

    pub(crate) fn done(mut self) {
        self.done = true;
    }
}

impl<P: MayEnd> Drop for Ending<P> {
    fn drop(&mut self) {
        self.place.set_ending(self.done);
    }
}
