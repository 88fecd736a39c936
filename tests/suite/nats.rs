//! Events over a real NATS server.

use std::path::PathBuf;

use anyhow::{Context, Result};
use roost_cluster::{NatsAuth, Pem, TlsIdentity};
use roost_tests::{Certificates, Cluster, MODEL, Nats, Options, Peers, worker_of};
use serde_json::json;
use tempfile::TempDir;

const LONG: &str = "every word of this sentence is cached somewhere by now. ";

async fn blocks(cluster: &Cluster) -> Result<f64> {
    cluster.metric_sum("roost_index_blocks", "").await
}

/// Long prompts without a session lead back to the worker whose events told of them.
async fn overlap_decides(cluster: &Cluster, model: &str) -> Result<()> {
    let ask = async |content: String| {
        let body =
            json!({"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": content}]});
        let reply = cluster.chat_body(&body).send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json().map(|answer| worker_of(&answer))
    };
    let before = blocks(cluster).await?;
    let long = format!("{before} {}", LONG.repeat(60));
    let home = ask(long.clone()).await?;
    cluster.until("its events have come", async || Ok(blocks(cluster).await? >= before + 30.0)).await?;
    for n in 0..4 {
        assert_eq!(ask(format!("{long} {n}")).await?, home);
    }
    Ok(())
}

#[tokio::test]
async fn events_of_our_workers_over_nats_and_over_its_restart() -> Result<()> {
    let Some(mut nats) = Nats::start(&["--user", "me", "--pass", "secret"]).await? else { return Ok(()) };
    let client = nats.client(NatsAuth::UserPassword("me".into(), "secret".into()))?;
    let mut options = Options::new(2);
    options.nats = Some(client.clone());
    let cluster = options.start().await?;
    overlap_decides(&cluster, MODEL).await?;
    assert!(client.stats().received > 0 && client.stats().published > 0, "{:?}", client.stats());

    // What happens while NATS is away is asked for when it is back.
    nats.kill()?;
    cluster.until("it is noticed", async || Ok(!client.stats().connected)).await?;
    let connected = async || cluster.metric_sum("roost_event_connections", "").await;
    cluster.until("nobody is heard", async || Ok(connected().await? == 0.0)).await?;
    assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200, "requests do not need it");
    nats.run().await?;
    cluster.until("all are heard again", async || Ok(connected().await? == 4.0)).await?;
    overlap_decides(&cluster, MODEL).await?;
    assert_eq!(client.stats().connects, 2);
    assert_eq!(cluster.metric("roost_event_undecodable_messages_total").await?, Some(0.0));
    Ok(())
}

#[tokio::test]
async fn a_key_opens_what_is_closed_to_others() -> Result<()> {
    let folder = TempDir::new()?;
    let file = folder.path().join("nats.conf");
    // The pair of NATS's own documentation.
    std::fs::write(
        &file,
        "authorization: { users: [ { nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4 } ] }",
    )?;
    let path = file.to_str().context("path")?;
    let Some(nats) = Nats::start(&["--config", path]).await? else { return Ok(()) };
    let seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    let ours = nats.client(NatsAuth::Nkey(seed.into()))?;
    let strangers = nats.client(NatsAuth::Token("guess".into()))?;
    let mut options = Options::new(1);
    options.nats = Some(ours.clone());
    let cluster = options.start().await?;
    cluster.until("the key is accepted", async || Ok(ours.stats().connected)).await?;
    overlap_decides(&cluster, MODEL).await?;
    assert_eq!(strangers.stats().connects, 0);
    Ok(())
}

#[tokio::test]
async fn a_credentials_file_of_an_account() -> Result<()> {
    let folder = TempDir::new()?;
    let (server, user) = roost_tests::nats::credentials()?;
    let (_, stranger) = roost_tests::nats::credentials()?;
    let write = |name: &str, text: &str| -> Result<PathBuf> {
        let path = folder.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    };
    let config = write("nats.conf", &server)?;
    let Some(nats) = Nats::start(&["--config", config.to_str().context("path")?]).await? else {
        return Ok(());
    };
    let stranger = nats.client(NatsAuth::Credentials(write("stranger.creds", &stranger)?))?;
    let nobody = nats.client(NatsAuth::None)?;
    let ours = nats.client(NatsAuth::Credentials(write("user.creds", &user)?))?;
    let mut options = Options::new(1);
    options.nats = Some(ours.clone());
    let cluster = options.start().await?;
    cluster.until("the credentials are accepted", async || Ok(ours.stats().connected)).await?;
    overlap_decides(&cluster, MODEL).await?;
    assert_eq!((stranger.stats().connects, nobody.stats().connects), (0, 0));
    Ok(())
}

#[tokio::test]
async fn certificates_of_both_sides() -> Result<()> {
    let (made, foreign) = (Certificates::make()?, Certificates::make()?);
    let files =
        [made.certificate_file(), made.key_file(), made.ca_file()].map(|path| path.display().to_string());
    let [certificate, key, ca] = &files;
    let arguments = [
        "--tls",
        "--tlsverify",
        "--tlscert",
        certificate,
        "--tlskey",
        key,
        "--tlscacert",
        ca,
        "--user",
        "me",
        "--pass",
        "secret",
    ];
    let Some(mut nats) = Nats::start(&arguments).await? else { return Ok(()) };
    let shown =
        |whose: &Certificates| Some((Pem::File(whose.certificate_file()), Pem::File(whose.key_file())));
    let client = |ca: &Certificates, client: Option<(Pem, Pem)>| {
        let tls = TlsIdentity { ca: Some(Pem::File(ca.ca_file())), client };
        nats.client_with(NatsAuth::UserPassword("me".into(), "secret".into()), Some(tls))
    };
    let strangers = [
        client(&foreign, shown(&made))?,
        client(&made, None)?,
        client(&made, shown(&foreign))?,
        nats.client(NatsAuth::UserPassword("me".into(), "secret".into()))?,
    ];
    let ours = client(&made, shown(&made))?;
    let mut options = Options::new(2);
    options.nats = Some(ours.clone());
    let cluster = options.start().await?;
    overlap_decides(&cluster, MODEL).await?;
    // Over a restart as well: the second handshake is the first one's equal.
    nats.kill()?;
    cluster.until("it is noticed", async || Ok(!ours.stats().connected)).await?;
    nats.run().await?;
    cluster.until("it is back", async || Ok(ours.stats().connected)).await?;
    overlap_decides(&cluster, MODEL).await?;
    assert_eq!(strangers.map(|stranger| stranger.stats().connects), [0; 4]);
    Ok(())
}

#[tokio::test]
async fn dynamo_mockers_and_a_dynamo_frontend_on_nats() -> Result<()> {
    const WIRE_MODEL: &str = "wire-model";
    let Some(peers) = Peers::find() else { return Ok(()) };
    let Some(nats) = Nats::start(&[]).await? else { return Ok(()) };
    let peers = peers.on_nats(&nats.url());
    let folder = TempDir::new()?;
    let store = folder.path().join("store");
    let mut options = Options::new(0);
    options.store = Some(store.clone());
    options.replicas = true;
    options.nats = Some(nats.client(NatsAuth::None)?);
    options.config.models.cache_dir = folder.path().join("cards");
    let cluster = options.start().await?;
    let arguments =
        ["--router-mode", "kv", "--router-session-affinity-ttl-secs", "3600", "--router-replica-sync"];
    let (frontend, theirs) = peers.frontend(&store, &arguments)?;
    let blocks = ["--num-gpu-blocks-override", "4096"];
    let (first, second) = (peers.mocker(&store, &blocks)?, peers.mocker(&store, &blocks)?);
    let outputs = || [&frontend, &first, &second].map(|peer| peer.output()).join("\n");
    cluster.wait_for_workers(WIRE_MODEL, 2).await.with_context(outputs)?;
    overlap_decides(&cluster, WIRE_MODEL).await.with_context(outputs)?;
    super::replicas::serves(&cluster, theirs, WIRE_MODEL).await.with_context(outputs)?;
    super::replicas::stand_side_by_side(&cluster, theirs, WIRE_MODEL).await.with_context(outputs)?;
    let undecodable = cluster.metric("roost_event_undecodable_messages_total").await?;
    assert_eq!(undecodable, Some(0.0));
    Ok(())
}
