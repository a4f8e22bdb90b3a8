//! The runtimes that commands work in: all their threads, or an error that says what to do.
//!
//! Never looks beforehand whether there is room: other processes of the same user count against the
//! same limit, and may take it in between.

use std::cell::RefCell;
use std::sync::Once;
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// How long the last tasks may take to close their connections.
pub(super) const CLOSING: Duration = Duration::from_secs(2);
/// Least threads of the runtime: one may be kept waiting by the audit file's disk.
const LEAST_WORKERS: usize = 2;
/// How long a thread for what blocks waits for more of it: for good.
const KEPT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A runtime, or why there is none.
type Built = Result<Runtime, String>;

/// Does something in a runtime of its own.
pub(super) fn in_runtime<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).max(LEAST_WORKERS);
    let runtime = start(workers, |_| {})?;
    let done = runtime.block_on(work);
    // What hangs in a system call is left behind.
    runtime.shutdown_timeout(CLOSING);
    done
}

/// Starts a runtime of so many workers, and one thread for what blocks. That one stays: where no other
/// can be made later, work waits for it, but where there is none at all, tokio panics.
///
/// # Errors
/// A thread can't be made. Nothing is printed then.
pub(super) fn start(workers: usize, adapt: impl FnOnce(&mut Builder) + Send + 'static) -> Built {
    let (sender, receiver) = mpsc::sync_channel(2);
    let build = move || {
        listen_to_panics_here(sender.clone());
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(workers).thread_keep_alive(KEPT).enable_all();
        adapt(&mut builder);
        let built = builder.build().map_err(|error| no_runtime(&error.to_string()));
        if let Ok(runtime) = &built {
            runtime.spawn_blocking(|| ());
        }
        let _ = sender.send(built);
    };
    // On a thread of its own: it is left where it stands if it gets stuck.
    std::thread::Builder::new().spawn(build).map_err(|error| no_runtime(&error.to_string()))?;
    receiver.recv().unwrap_or_else(|_| Err(no_runtime("its builder gave up")))
}

thread_local! {
    /// Who is told of a panic on this thread.
    static TOLD: RefCell<Option<SyncSender<Built>>> = const { RefCell::new(None) };
}

/// tokio's builder panics where the system gives it no thread, and then waits for good for those that it
/// has, which never end. So a panic on this thread is told to who waits, who leaves the thread behind.
fn listen_to_panics_here(sender: SyncSender<Built>) {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let told = TOLD.try_with(RefCell::take).ok().flatten();
            let Some(told) = told else { return others(panic) };
            let _ = told.send(Err(no_runtime(panic.payload_as_str().unwrap_or("its builder panicked"))));
        }));
    });
    TOLD.set(Some(sender));
}

fn no_runtime(why: &str) -> String {
    format!(
        "no runtime: {why}; raise the limits on processes and threads (ulimit -u, or that of the container) and on open files"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// No address space holds such a stack, so the system refuses the thread.
    const TOO_MUCH: usize = 1 << 60;

    #[test]
    fn a_runtime_without_room_is_an_error_with_what_to_do() {
        for workers in [1, 2, 8] {
            let error = start(workers, |builder| {
                builder.thread_stack_size(TOO_MUCH);
            })
            .unwrap_err();
            assert!(
                error.contains("Resource temporarily unavailable") && error.contains("ulimit"),
                "{error}"
            );
        }
    }

    /// Whichever thread it is that can't be made, the one for what blocks included.
    #[test]
    fn each_thread_that_is_missing_is_an_error() {
        const WORKERS: usize = 3;
        for missing in 0..=WORKERS {
            let made = AtomicUsize::new(0);
            let started = start(WORKERS, move |builder| {
                // A name that no thread can have.
                builder.thread_name_fn(move || {
                    let number = made.fetch_add(1, Ordering::Relaxed);
                    if number == missing { "\0".to_owned() } else { "named".to_owned() }
                });
            });
            assert!(started.is_err(), "{missing}");
        }
    }
}
