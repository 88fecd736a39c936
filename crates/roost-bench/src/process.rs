//! What a process has used, as the kernel tells.

use std::time::Duration;

/// A reading of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Processor time of all threads.
    pub(crate) cpu: Duration,
    /// Memory now, bytes.
    pub(crate) rss: u64,
    /// The most it ever had, bytes.
    pub(crate) peak_rss: u64,
}

/// Ticks a second in `/proc`, on every Linux of today.
const TICKS: u64 = 100;

/// `None` when the process is gone.
pub(crate) fn usage(pid: u32) -> Option<Usage> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(Usage {
        cpu: Duration::from_millis(ticks(&stat)? * 1000 / TICKS),
        rss: kilobytes(&status, "VmRSS:")? * 1024,
        peak_rss: kilobytes(&status, "VmHWM:")? * 1024,
    })
}

/// User and system time. The name of the program, in brackets, may contain anything.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

fn kilobytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory() {
        let usage = usage(std::process::id()).expect("it runs");
        assert!(usage.rss > 0 && usage.peak_rss >= usage.rss);
        let stat = "1 (a) b) S 1 1 1 0 -1 4 1 0 0 0 70 30 0 0 20";
        assert_eq!(ticks(stat), Some(100));
    }
}
