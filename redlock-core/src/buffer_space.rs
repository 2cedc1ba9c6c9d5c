//! The memory in which the layers of `redlock-axum` keep request bodies until their locks are held.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory for the request bodies that wait for the locks of one manager, in bytes.
#[derive(Debug)]
pub struct BufferSpace {
    limit: usize,
    free: AtomicUsize,
}

impl BufferSpace {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, free: limit.into() })
    }

    /// Returns the size of the whole space.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

/// A part of a [`BufferSpace`], which is free again when this value is dropped.
#[derive(Debug)]
pub struct Reserved {
    space: Arc<BufferSpace>,
    bytes: usize,
}

impl Reserved {
    /// Returns an empty part of a space.
    pub fn new(space: &Arc<BufferSpace>) -> Self {
        Self { space: Arc::clone(space), bytes: 0 }
    }

    /// Returns the whole space.
    pub fn space(&self) -> &BufferSpace {
        &self.space
    }

    /// Enlarges the part to this size. Returns `false`, and changes nothing, if less is free. Never makes it smaller.
    #[must_use]
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let take = |free: usize| free.checked_sub(more);
        let taken = self.space.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_ok() {
            self.bytes += more;
        }
        taken.is_ok()
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.space.free.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_space_never_exceed_it_and_are_free_after_a_drop() {
        let space = BufferSpace::new(10);
        let (mut one, mut two) = (Reserved::new(&space), Reserved::new(&space));
        assert!(one.grow_to(4) && one.grow_to(3) && two.grow_to(6));
        assert!(!one.grow_to(5), "more than the space");
        drop(two);
        assert!(one.grow_to(10) && !one.grow_to(11));
        drop(one);
        assert!(Reserved::new(&space).grow_to(10));
    }

    #[test]
    fn threads_that_reserve_at_the_same_time_leave_the_space_as_it_was() {
        let space = BufferSpace::new(100);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for bytes in 0..1000 {
                        let mut part = Reserved::new(&space);
                        let _ = part.grow_to(bytes % 40) && part.grow_to(bytes % 90);
                        assert!(space.free.load(Ordering::Relaxed) <= 100);
                    }
                });
            }
        });
        assert_eq!(space.free.load(Ordering::Relaxed), 100);
    }
}
