//! A fixed set of threads for work that would stall the network runtime.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Why a job gave no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PoolError {
    /// The queue is full.
    #[error("the queue of the prepare threads is full")]
    Full,
    /// The job panicked, or the pool ended.
    #[error("the job was lost")]
    Lost,
}

/// Owner of the threads and of the bounded queue before them.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    ready: Condvar,
    capacity: usize,
}

struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Pool {
    /// Starts `threads` threads with room for `capacity` waiting jobs.
    pub(crate) fn new(threads: usize, capacity: usize) -> std::io::Result<Self> {
        let state = Mutex::new(State { jobs: VecDeque::new(), closed: false });
        let shared = Arc::new(Shared { state, ready: Condvar::new(), capacity });
        let threads = (0..threads.max(1))
            .map(|n| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new().name(format!("prepare-{n}")).spawn(move || shared.work())
            })
            .collect::<Result<_, _>>()?;
        Ok(Pool { shared, threads })
    }

    /// Runs `job` on one of the threads. A job whose caller has gone before its turn is skipped.
    pub(crate) async fn run<T, F>(&self, job: F) -> Result<T, PoolError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (tx, rx) = oneshot::channel();
        self.push(Box::new(move || {
            if !tx.is_closed() {
                // The caller may have gone meanwhile: nobody is left to tell.
                let _gone = tx.send(job());
            }
        }))?;
        rx.await.map_err(|_| PoolError::Lost)
    }

    /// Jobs that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.state.lock().jobs.len()
    }

    fn push(&self, job: Job) -> Result<(), PoolError> {
        let mut state = self.shared.state.lock();
        if state.jobs.len() >= self.shared.capacity {
            return Err(PoolError::Full);
        }
        state.jobs.push_back(job);
        drop(state);
        self.shared.ready.notify_one();
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.jobs.clear();
        drop(state);
        self.shared.ready.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked outside a job has nothing left to clean up.
            let _ended = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next() {
            // The job owns its channel: a panic drops it and the caller sees `Lost`.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("a prepare job panicked");
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            self.ready.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn runs_jobs_and_survives_panics() {
        let pool = Pool::new(1, 4).unwrap();
        assert_eq!(pool.run(|| 1 + 1).await, Ok(2));
        assert_eq!(pool.run(|| -> u8 { panic!("expected in this test") }).await, Err(PoolError::Lost));
        assert_eq!(pool.run(|| 3).await, Ok(3));
    }

    #[tokio::test]
    async fn a_full_queue_refuses() {
        let pool = Arc::new(Pool::new(1, 1).unwrap());
        let (go, wait) = std::sync::mpsc::sync_channel::<()>(0);
        let (started, running) = oneshot::channel();
        let busy = tokio::spawn({
            let pool = Arc::clone(&pool);
            async move {
                pool.run(move || {
                    started.send(()).unwrap();
                    wait.recv().unwrap();
                })
                .await
            }
        });
        running.await.unwrap();
        let mut queued = Box::pin(pool.run(|| 7));
        tokio::select! { biased; _ = &mut queued => unreachable!("the thread is busy"), () = std::future::ready(()) => {} }
        assert_eq!(pool.waiting(), 1);
        assert_eq!(pool.run(|| 8).await, Err(PoolError::Full));
        go.send(()).unwrap();
        assert_eq!(queued.await, Ok(7));
        assert_eq!(busy.await.unwrap(), Ok(()));
    }
}
