use std::net::{Ipv4Addr, SocketAddr};

use roost_cluster::record::ModelCard;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::harness::{Harness, within};
use crate::SystemConfig;

fn system(settings: &mut super::harness::Settings) {
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    settings.worker.system = Some(SystemConfig { bind, advertise_host: None });
    settings.engine.model_name = "Org/Tiny Model".to_owned();
}

fn urls(card: &ModelCard) -> Vec<(String, String, u64)> {
    let files = [&card.model_info, &card.tokenizer, &card.prompt_formatter, &card.gen_config];
    files
        .into_iter()
        .map(|file| file.as_ref().unwrap().file())
        .map(|file| (file.path.clone(), file.checksum.clone(), file.size.unwrap()))
        .collect()
}

/// Status and body of one request, over a connection of its own.
async fn fetch(url: &str, method: &str) -> (u16, Vec<u8>) {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut socket = TcpStream::connect(host).await.unwrap();
    let head = format!("{method} /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    within(socket.read_to_end(&mut answer)).await.unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let status = std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
    (status, answer[end + 4..].to_vec())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cards_files_are_served_and_nothing_else() {
    let harness = Harness::with(system).await;
    let card = harness.card().card;
    let urls = urls(&card);
    for (url, checksum, size) in &urls {
        assert!(url.contains("/v1/metadata/dynamo/backend/generate/org_tiny_model/_base/"), "{url}");
        let (status, body) = fetch(url, "GET").await;
        assert_eq!((status, body.len() as u64), (200, *size));
        assert_eq!(*checksum, format!("blake3:{}", blake3::hash(&body)));
    }
    let (url, ..) = &urls[0];
    assert_eq!(fetch(&url.replace("config.json", "secrets.json"), "GET").await.0, 404);
    assert_eq!(fetch(&url.replace("config.json", "../../../../../../etc/passwd"), "GET").await.0, 404);
    assert_eq!(fetch(url, "POST").await.0, 405);
    let (status, body) = fetch(url, "HEAD").await;
    assert_eq!((status, body.len()), (200, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_port_closes_with_the_worker() {
    let harness = Harness::with(system).await;
    let (url, ..) = urls(&harness.card().card).remove(0);
    let host = url.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
    // A connection that is open and idle must not keep the worker from closing.
    let idle = TcpStream::connect(&host).await.unwrap();
    within(harness.worker.shutdown()).await;
    assert!(TcpStream::connect(&host).await.is_err());
    drop(idle);
}
