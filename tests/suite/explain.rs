//! Why a request went where it went: `/debug/routing`.

use anyhow::Result;
use roost_tests::{Options, worker_of};
use serde_json::Value;

#[tokio::test]
async fn a_decision_can_be_looked_up_by_answer_and_by_session() -> Result<()> {
    let cluster = Options::new(3).start().await?;
    let mut answers = Vec::new();
    for n in 0..2 {
        answers.push(cluster.chat(&format!("@@hello@@ {n}")).session("team/a b").send().await?.json()?);
    }
    let home = worker_of(&answers[0]);
    let id = answers[0]["id"].as_str().unwrap_or_default();
    let about = cluster.get(&format!("/debug/routing/{id}")).send().await?.json()?;
    let [first] = &about["decisions"].as_array().cloned().unwrap_or_default()[..] else {
        panic!("one decision: {about}")
    };
    assert_eq!((&first["outcome"], &first["reason"]), (&"placed".into(), &"cost".into()));
    assert_eq!((&first["worker"]["id"], &first["affinity"]["outcome"]), (&home.into(), &"new".into()));
    assert_eq!(first["considered"], 3);
    let candidates = first["candidates"].as_array().cloned().unwrap_or_default();
    assert_eq!((candidates.len(), &candidates[0]["chosen"]), (3, &Value::Bool(true)));
    let cost = |candidate: &Value| candidate["cost"]["total"].as_f64().unwrap_or(f64::NAN);
    assert!(candidates.iter().all(|other| cost(&candidates[0]) <= cost(other)), "{about}");

    let about = cluster.get("/debug/routing/team%2Fa%20b").send().await?.json()?;
    assert_eq!(about["bound"][0]["worker"]["id"], home);
    let outcomes: Vec<&Value> = about["decisions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|made| &made["affinity"]["outcome"])
        .collect();
    assert_eq!(outcomes, ["hit", "new"], "the latest first");

    let unknown = cluster.get("/debug/routing/nobody").send().await?;
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("nobody"), "{}", unknown.text());
    let recent = cluster.get("/debug/routing").send().await?.json()?;
    assert_eq!(recent["decisions"].as_array().map(Vec::len), Some(2));
    Ok(())
}

/// The worker that answered is named, and the record shows why the session had to leave.
#[tokio::test]
async fn a_retried_turn_names_the_worker_that_answered() -> Result<()> {
    let mut cluster = Options::new(2).start().await?;
    let home = worker_of(&cluster.chat("@@hello@@ 0").session("s").send().await?.json()?);
    let home = cluster.index_of(home);
    cluster.workers[home].kill().await;
    let answer = cluster.chat("@@hello@@ 1").session("s").send().await?.json()?;
    let other = cluster.workers.swap_remove(1 - home);
    assert_eq!(worker_of(&answer), other.id());
    assert_eq!(other.journal().requests().len(), 1);
    let about = cluster.get("/debug/routing/s").send().await?.json()?;
    let [retry, tried, _first] = &about["decisions"].as_array().cloned().unwrap_or_default()[..] else {
        panic!("three decisions: {about}")
    };
    assert_eq!(retry["request"], tried["request"]);
    assert_eq!(
        (&retry["worker"]["id"], &retry["affinity"]["outcome"]),
        (&other.id().into(), &"rebound".into())
    );
    assert_eq!(tried["affinity"]["outcome"], "hit");
    Ok(())
}

#[tokio::test]
async fn the_admin_api_can_be_removed() -> Result<()> {
    let cluster = Options::new(1).with(|config| config.http.admin_api = false).start().await?;
    for path in ["/debug/routing", "/debug/routing/s", "/busy_threshold"] {
        assert_eq!(cluster.get(path).send().await?.status, 404, "{path}");
    }
    assert_eq!(cluster.get("/v1/models").send().await?.status, 200);
    Ok(())
}
