//! A value that can be watched, like tokio's `watch`, whose watchers wake in the order in which they began to wait.
//!
//! Tokio's wakes them in a random order. Which of two services sees a change first then differs from run to run, and with it the order
//! of what they append: a simulation whose seed decides everything can't have that.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::Notify;

/// Nobody can change the value any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the value can't change any more: whoever could change it is gone")]
pub struct Gone;

struct Shared<T> {
    /// The value and how often it was changed.
    value: RwLock<(T, u64)>,
    changed: Notify,
    senders: AtomicUsize,
}

impl<T> Shared<T> {
    fn read(&self) -> RwLockReadGuard<'_, (T, u64)> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes the value. Watchers are told when the last one is dropped.
pub struct Sender<T>(Arc<Shared<T>>);

/// Watches the value.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// The value as it is now. Hold it briefly: whoever changes it waits.
pub struct Ref<'a, T>(RwLockReadGuard<'a, (T, u64)>);

/// A value and one watcher of it.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Sender<T> {
    /// A value nobody watches yet.
    pub fn new(value: T) -> Self {
        let senders = AtomicUsize::new(1);
        Self(Arc::new(Shared { value: RwLock::new((value, 0)), changed: Notify::new(), senders }))
    }

    /// Another watcher; it has seen the value as it is now.
    pub fn subscribe(&self) -> Receiver<T> {
        let seen = self.0.read().1;
        Receiver { shared: Arc::clone(&self.0), seen }
    }

    /// The value.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.0.read())
    }

    /// Changes the value.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Changes the value; nobody is told where `change` says that it didn't. Gives what it said.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let changed = {
            let mut value = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
            let changed = change(&mut value.0);
            value.1 += u64::from(changed);
            changed
        };
        if changed {
            self.0.changed.notify_waiters();
        }
        changed
    }

    /// Puts another value there; gives the one before.
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|old| std::mem::swap(old, &mut value));
        value
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}

impl<T> Receiver<T> {
    /// The value.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.read())
    }

    /// The value, which counts as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let value = self.shared.read();
        self.seen = value.1;
        Ref(value)
    }

    /// Whether the value was changed since it was seen.
    ///
    /// # Errors
    /// When nobody can change it any more.
    pub fn has_changed(&self) -> Result<bool, Gone> {
        let changed = self.shared.read().1 != self.seen;
        if changed || self.shared.senders.load(Ordering::SeqCst) > 0 { Ok(changed) } else { Err(Gone) }
    }

    /// The value counts as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.read().1;
    }

    /// Waits until the value was changed since it was seen; then it is seen. Safe to drop and call again.
    ///
    /// # Errors
    /// When nobody can change it any more.
    pub async fn changed(&mut self) -> Result<(), Gone> {
        let shared = Arc::clone(&self.shared);
        loop {
            let mut told = std::pin::pin!(shared.changed.notified());
            // From here on nothing is missed.
            told.as_mut().enable();
            if self.has_changed()? {
                self.mark_unchanged();
                return Ok(());
            }
            told.await;
        }
    }

    /// Waits until the value is as wanted.
    ///
    /// # Errors
    /// When nobody can change it any more and it isn't.
    pub async fn wait_for(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, Gone> {
        let shared = Arc::clone(&self.shared);
        loop {
            let mut told = std::pin::pin!(shared.changed.notified());
            told.as_mut().enable();
            self.mark_unchanged();
            if wanted(&self.shared.read().0) {
                return Ok(self.borrow());
            }
            if self.shared.senders.load(Ordering::SeqCst) == 0 {
                return Err(Gone);
            }
            told.await;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.0.read().0).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&self.shared.read().0).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.0.fmt(f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn watchers_wake_in_the_order_in_which_they_waited() {
        let (sender, receiver) = channel(0);
        let order = Arc::new(Mutex::new(Vec::new()));
        let watchers: Vec<_> = (0..40)
            .map(|n| {
                let (mut receiver, order) = (receiver.clone(), Arc::clone(&order));
                tokio::spawn(async move {
                    receiver.changed().await.unwrap();
                    order.lock().unwrap().push(n);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        sender.send_replace(1);
        for watcher in watchers {
            watcher.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..40).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_change_is_seen_once_and_the_end_is_told() {
        let (sender, mut receiver) = channel(1);
        assert_eq!(receiver.has_changed(), Ok(false));
        sender.send_modify(|value| *value += 1);
        assert_eq!(receiver.changed().await, Ok(()));
        assert_eq!((*receiver.borrow(), receiver.has_changed()), (2, Ok(false)));
        let wait = tokio::spawn({
            let mut receiver = receiver.clone();
            async move { receiver.wait_for(|value| *value == 3).await.map(|value| *value) }
        });
        tokio::task::yield_now().await;
        assert_eq!(sender.send_replace(3), 2);
        assert_eq!(wait.await.unwrap(), Ok(3));
        drop(sender);
        assert_eq!(receiver.changed().await, Ok(()), "what was changed before the end is told first");
        assert_eq!(receiver.changed().await, Err(Gone));
    }
}
