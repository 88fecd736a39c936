//! Load reports of servers, in both of their shapes. Pure.

use roost_worker::RankLoad;
use serde::Deserialize;

/// The answer of `/v1/loads`.
#[derive(Debug, Deserialize)]
pub(super) struct Loads {
    pub(super) loads: Vec<Report>,
}

/// What one rank reports, in tokens.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    dp_rank: u32,
    num_running_reqs: u64,
    num_waiting_reqs: u64,
    num_waiting_uncached_tokens: u64,
    num_used_tokens: u64,
    max_total_num_tokens: u64,
}

/// In what a rank's memory is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    /// Tokens per block.
    pub(super) block_size: u32,
}

impl Report {
    /// Reads a published report: `["LoadStat", running, waiting, tokens used, capacity, rank, waiting uncached tokens, …]`.
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        // Versions add fields at the end: the array is read loosely.
        let fields: Vec<Loose> = rmp_serde::from_slice(payload).ok()?;
        let number = |at: usize| match fields.get(at) {
            Some(Loose::Number(number)) => Some(*number),
            _ => None,
        };
        matches!(&fields[..], [Loose::Text(tag), ..] if tag == "LoadStat").then_some(())?;
        Some(Report {
            num_running_reqs: number(1)?,
            num_waiting_reqs: number(2)?,
            num_used_tokens: number(3)?,
            max_total_num_tokens: number(4)?,
            dp_rank: u32::try_from(number(5)?).ok()?,
            num_waiting_uncached_tokens: number(6).unwrap_or(0),
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Loose {
    Number(u64),
    Text(String),
    Other(serde::de::IgnoredAny),
}

impl Capacity {
    /// The report as the worker side tells it.
    pub(super) fn load(self, report: &Report) -> RankLoad {
        let size = u64::from(self.block_size.max(1));
        let used = report.num_used_tokens.div_ceil(size);
        RankLoad {
            dp_rank: report.dp_rank,
            running_requests: report.num_running_reqs,
            waiting_requests: report.num_waiting_reqs,
            active_blocks: used,
            active_prefill_tokens: report.num_waiting_uncached_tokens,
            used_blocks: used,
            total_blocks: report.max_total_num_tokens / size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> Vec<u8> {
        std::fs::read(format!("{}/../../tests/fixtures/sglang/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn captured_reports_of_both_shapes() {
        let loads: Loads = serde_json::from_slice(&fixture("dp2.v1_loads.http")).unwrap();
        assert_eq!(loads.loads.iter().map(|load| load.dp_rank).collect::<Vec<_>>(), [0, 1]);
        assert!(loads.loads.iter().all(|load| load.max_total_num_tokens == 8192));

        let captured: serde_json::Value = serde_json::from_slice(&fixture("dp2.load.rank0.json")).unwrap();
        let mut used = Vec::new();
        for message in captured.as_array().unwrap() {
            let hex = message["payload_hex"].as_str().unwrap();
            let bytes: Vec<u8> = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect();
            let report = Report::decode(&bytes).unwrap();
            let payload = &message["payload"];
            assert_eq!(payload[3], report.num_used_tokens);
            assert_eq!(payload[4], report.max_total_num_tokens);
            assert_eq!(payload[5], report.dp_rank);
            used.push(Capacity { block_size: 16 }.load(&report).used_blocks);
        }
        assert!(used.contains(&0) && used.contains(&6), "{used:?}");
    }

    #[test]
    fn what_is_no_report_is_none() {
        for bytes in [&b""[..], b"\x90", b"\x91\xa8LoadStat", b"\x93\xa1x\x01\x02", b"\xff\xff"] {
            assert_eq!(Report::decode(bytes), None);
        }
    }
}
