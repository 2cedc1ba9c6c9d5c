//! How many bytes of the replies one turn of the driver reads.

/// The number of slices in which the replies to all commands in flight are read.
///
/// Fewer slices let the client and the server work in turns, more of them need more system calls. With one to four
/// slices 64 callers are slower than with six, and with eight 12 callers are.
const SLICES: usize = 6;

/// The average length of a reply before replies have arrived: `+OK` with the line break.
const FIRST_AVERAGE: usize = 5;

/// The number of replies after which their average length is computed again.
const SAMPLE: usize = 64;

/// A part of the replies for each turn of the driver.
#[derive(Debug)]
pub(super) struct Slices {
    /// The average length of the replies and messages of the last sample.
    average: usize,
    /// The number of bytes, and of replies and messages, since then.
    bytes: usize,
    ended: usize,
    /// The factor by which slices are longer within a long reply.
    growth: usize,
    /// Whether a whole slice was read in this turn.
    is_read: bool,
}

impl Slices {
    pub(super) fn new() -> Self {
        Self { average: FIRST_AVERAGE, bytes: 0, ended: 0, growth: 1, is_read: false }
    }

    /// Returns the length of a slice in bytes: a sixth of the awaited replies, and at least one reply. Within a long
    /// reply each slice is twice as long as the one before, so that few turns read it.
    pub(super) fn length(&self, in_flight: usize) -> usize {
        let slice = (in_flight * self.average / SLICES).max(self.average);
        slice.saturating_mul(self.growth)
    }

    /// Records that bytes were read, in which `ended` replies and messages came to their end.
    pub(super) fn record(&mut self, read: usize, slice: Option<usize>, ended: usize) {
        self.is_read = slice.is_some_and(|slice| read >= slice);
        self.growth = if ended == 0 { self.growth.saturating_mul(2) } else { 1 };
        self.bytes += read;
        self.ended += ended;
        if self.ended >= SAMPLE {
            self.average = self.bytes.div_ceil(self.ended);
            (self.bytes, self.ended) = (0, 0);
        }
    }

    /// Returns whether this turn of the driver has read its slice.
    pub(super) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Begins the next turn.
    pub(super) fn next_turn(&mut self) {
        self.is_read = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_a_sixth_of_the_replies_and_at_least_one() {
        let slices = Slices::new();
        for (in_flight, bytes) in [(1, 5), (2, 5), (6, 5), (8, 6), (12, 10), (64, 53)] {
            assert_eq!(slices.length(in_flight), bytes, "{in_flight} in flight");
        }
    }

    /// The reply to a script can be much longer than `+OK`. A slice of five bytes would be a small part of it.
    #[test]
    fn the_length_of_a_slice_follows_the_length_of_the_replies() {
        let mut slices = Slices::new();
        for _ in 1..SAMPLE {
            slices.record(48, None, 1);
            assert_eq!(slices.length(2), FIRST_AVERAGE);
        }
        slices.record(48, None, 1);
        assert_eq!((slices.length(2), slices.length(12)), (48, 96));
        for _ in 0..SAMPLE / 2 {
            slices.record(9, None, 2);
        }
        assert_eq!(slices.length(2), 5, "4.5 bytes are rounded up");
    }

    #[test]
    fn few_slices_read_a_long_reply() {
        let mut slices = Slices::new();
        let (mut left, mut turns) = (100_000_usize, 0);
        while let length = slices.length(2)
            && length < left
        {
            slices.record(length, Some(length), 0);
            (left, turns) = (left - length, turns + 1);
        }
        assert_eq!(turns, 14);
        slices.record(left, None, 1);
        assert_eq!(slices.length(2), FIRST_AVERAGE);
    }

    #[test]
    fn a_turn_reads_one_slice() {
        let mut slices = Slices::new();
        slices.record(1000, None, 1);
        assert!(!slices.is_read(), "without slices");
        slices.record(9, Some(10), 1);
        assert!(!slices.is_read(), "there were no further replies");
        slices.record(10, Some(10), 1);
        assert!(slices.is_read());
        slices.next_turn();
        assert!(!slices.is_read());
    }
}
