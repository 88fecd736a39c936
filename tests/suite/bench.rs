//! The benchmark client against live frontends: what it reports is what the frontend and its workers say.

use std::time::Duration;

use anyhow::Result;
use roost_bench::{Load, Target, compare, json, page, table};
use roost_replay::Generator;
use roost_tests::Options;

fn load() -> Load {
    Load {
        model: None,
        lanes: 4,
        ramp: Duration::ZERO,
        measured: Duration::from_secs(300),
        rounds: 2,
        longest_pause: Duration::ZERO,
        scale: 0.0,
        longest_answer: 8,
        patience: Duration::from_secs(60),
        seed: 3,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_replayed_and_told_apart_by_worker() -> Result<()> {
    let cluster = Options::new(2).start().await?;
    let dead = Target { name: "nobody".into(), authority: "127.0.0.1:9".into(), pid: None };
    let live = Target {
        name: "roost".into(),
        authority: cluster.address.to_string(),
        pid: Some(std::process::id()),
    };
    let generator =
        Generator { sessions: 8, context: 0.02, turns: 0.06, subagents: 0.1, ..Generator::default() };
    let load = Load { model: Some(roost_tests::MODEL.into()), ..load() };
    let figures = compare(generator.trace(), &[dead, live], &load, |_| {}).await?;
    let [dead, live] = &figures[..] else { panic!("one for each") };
    assert!(dead.answers.iter().all(|answers| *answers == 0.0));
    assert!(!dead.errors.is_empty());

    assert!(live.errors.is_empty(), "{:?}", live.errors);
    let requests: usize = generator.trace().requests();
    assert_eq!(live.answers, [requests as f64; 2], "each round sends all of the trace");
    assert!(live.moves.iter().all(|moves| *moves == 0.0), "sessions stay: {:?}", live.moves);
    assert!(live.cached.iter().all(|share| *share > 0.5), "next turns are cached: {:?}", live.cached);
    assert!(live.imbalance.iter().all(|most| (1.0..2.0).contains(most)), "{:?}", live.imbalance);
    assert!(live.cpu_request.iter().all(|cpu| *cpu > 0.0) && live.peak_rss[0] > 1.0);
    // What the frontend counts.
    let counted = cluster.metric_sum("dynamo_frontend_requests_total", "status=\"success\"").await?;
    assert_eq!(counted, 2.0 * requests as f64);
    let text = table(&figures);
    assert!(
        text.starts_with("| | nobody | roost | nobody / roost |\n| --- | ---: | ---: | ---: |\n"),
        "{text}"
    );
    let charts = page(&figures);
    assert_eq!(charts.matches("<rect class=c1 ").count(), 4, "two workers, answers and tokens: {charts}");
    assert!(!charts.contains("<rect class=c0 "), "nobody has no workers: {charts}");
    assert_eq!(json(&figures)["targets"][1]["name"], "roost");
    Ok(())
}
