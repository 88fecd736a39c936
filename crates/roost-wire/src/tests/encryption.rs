//! TLS and mutual TLS around both planes, with certificates of our own making.

use std::{path::PathBuf, sync::Arc, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use tempfile::TempDir;
use tokio::{io::AsyncReadExt as _, net::TcpStream};
use tokio_util::sync::CancellationToken;

use super::harness::*;
use crate::{
    CallError, Client, ClientConfig, Item, ListenerConfig, ResponseListener, TlsError, TlsFiles, Transport,
    WorkerConfig, WorkerListener, message::Reason,
};

/// A folder with an authority and what it has certified.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `{name}.pem` and `{name}.key`.
    fn certify(&self, name: &str, subject: SanType) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names.push(subject);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (cert_file, key_file) = (self.file(&format!("{name}.pem")), self.file(&format!("{name}.key")));
        std::fs::write(&cert_file, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        (cert_file, key_file)
    }

    /// Both ends certified for the loopback address.
    fn files(&self) -> TlsFiles {
        let (cert, key) = self.certify("server", SanType::IpAddress([127, 0, 0, 1].into()));
        TlsFiles { cert: Some(cert), key: Some(key), ca: Some(self.file("ca.pem")), ..TlsFiles::default() }
    }

    fn mutual(&self) -> TlsFiles {
        let (cert, key) = self.certify("client", SanType::DnsName("frontend".try_into().unwrap()));
        TlsFiles {
            client_cert: Some(cert),
            client_key: Some(key),
            client_ca: Some(self.file("ca.pem")),
            ..self.files()
        }
    }
}

fn frontend(transport: &Transport) -> Frontend {
    let config = ListenerConfig { transport: transport.clone(), ..Default::default() };
    let listener = ResponseListener::bind(config).unwrap();
    let config = ClientConfig {
        transport: transport.clone(),
        farewell_timeout: Duration::from_millis(50),
        call_home_timeout: Duration::from_millis(500),
        ..Default::default()
    };
    Frontend { client: Client::new(config, Arc::clone(&listener)), listener }
}

fn worker(transport: &Transport) -> Arc<WorkerListener> {
    let config = WorkerConfig { transport: transport.clone(), ..Default::default() };
    serve_with(config, CancellationToken::new(), |_, body| {
        assert_eq!(body.len(), 1);
        Ok(Feed::ready((0..500).map(|id| Item::from(output(&[id])))))
    })
}

/// One call between ends that are set up like this.
async fn call(ours: &TlsFiles, theirs: &TlsFiles) -> Result<Vec<u32>, CallError> {
    let frontend = frontend(&Transport::tls(ours).unwrap());
    let worker = worker(&Transport::tls(theirs).unwrap());
    let mut stream = frontend.call(&target(worker.address())).await?;
    let (ids, error) = tokens(&mut stream).await;
    assert!(error.is_none(), "{error:?}");
    until(|| worker.stats().completed == 1).await;
    Ok(ids)
}

#[tokio::test]
async fn both_planes_speak_tls() {
    let authority = Authority::new();
    let files = authority.files();
    assert_eq!(call(&files, &files).await.unwrap().len(), 500);
    let mutual = authority.mutual();
    assert_eq!(call(&mutual, &mutual).await.unwrap().len(), 500);
}

#[tokio::test]
async fn a_killed_answer_is_killed_through_tls() {
    let transport = Transport::tls(&Authority::new().files()).unwrap();
    let (frontend, worker) = (frontend(&transport), worker_of_endless(&transport));
    let mut stream = frontend.call(&target(worker.address())).await.unwrap();
    assert!(within(stream.next()).await.unwrap().is_ok());
    drop(stream);
    until(|| worker.stats().cancelled == 1).await;
}

fn worker_of_endless(transport: &Transport) -> Arc<WorkerListener> {
    let config = WorkerConfig { transport: transport.clone(), ..Default::default() };
    serve_with(config, CancellationToken::new(), |_, _| {
        let (feed, fed) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move { while feed.send(output(&[1]).into()).await.is_ok() {} });
        Ok(Feed::fed(fed))
    })
}

#[tokio::test]
async fn who_is_not_certified_is_not_served() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let files = authority.files();

    // The worker's certificate is by somebody else.
    let error = call(&files, &stranger.files()).await.unwrap_err();
    assert_eq!(error.reason(), Reason::CannotConnect, "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
    // The switch believes anyone, also where a CA is given.
    let careless = TlsFiles { insecure: true, ..files.clone() };
    let trusting = TlsFiles { insecure: true, ..stranger.files() };
    assert!(call(&careless, &trusting).await.is_ok());

    // Plain to TLS: the handshake fails at the other end, which closes.
    let error = call(&TlsFiles::default(), &files).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");

    // A name where the address is not certified.
    let (cert, key) = authority.certify("named", SanType::DnsName("worker.local".try_into().unwrap()));
    let named = TlsFiles { cert: Some(cert), key: Some(key), ..files.clone() };
    let error = call(&files, &named).await.unwrap_err();
    assert_eq!(error.reason(), Reason::CannotConnect, "{error}");
    let by_name = TlsFiles { server_name: Some("worker.local".into()), ..named };
    assert!(call(&by_name, &by_name).await.is_ok());

    // Mutual: who dials without a certificate is turned away.
    let mutual = authority.mutual();
    let error = call(&files, &mutual).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
}

#[tokio::test]
async fn a_silent_dialer_costs_one_handshake() {
    let authority = Authority::new();
    let files = TlsFiles { handshake_timeout: Duration::from_millis(50), ..authority.files() };
    let frontend = frontend(&Transport::tls(&files).unwrap());
    let mut silent = TcpStream::connect(frontend.listener.address()).await.unwrap();
    assert!(matches!(within(silent.read(&mut [0; 16])).await, Ok(0) | Err(_)));
    until(|| frontend.listener.stats().bad_handshakes == 1).await;
}

#[tokio::test]
async fn a_renewed_certificate_is_used_after_a_refresh() {
    let authority = Authority::new();
    let files = authority.files();
    let theirs = Transport::tls(&files).unwrap();
    let worker = worker(&theirs);
    let target = target(worker.address());
    // The new one is for another address: who checks it notices.
    authority.certify("server", SanType::IpAddress([127, 0, 0, 9].into()));
    let before = frontend(&Transport::tls(&TlsFiles { cert: None, key: None, ..files.clone() }).unwrap());
    before.client.warm(target.address);
    until(|| before.client.stats().open_connections == 1).await;
    theirs.refresh().unwrap();
    let after = frontend(&Transport::tls(&files).unwrap());
    let error = after.call(&target).await.unwrap_err();
    assert_eq!(error.reason(), Reason::CannotConnect, "{error}");
    // A broken file changes nothing.
    std::fs::write(authority.file("server.pem"), "nothing").unwrap();
    assert!(theirs.refresh().is_err());
}

#[test]
fn half_a_setting_is_refused_by_name() {
    let authority = Authority::new();
    let files = authority.mutual();
    let refusal = |files: TlsFiles| Transport::tls(&files).unwrap_err().to_string();
    assert!(refusal(TlsFiles { key: None, ..files.clone() }).contains("the key"));
    assert!(refusal(TlsFiles { client_cert: None, ..files.clone() }).contains("the client certificate"));
    let error = Transport::tls(&TlsFiles { ca: None, ..files.clone() }).unwrap_err();
    assert!(matches!(error, TlsError::NoTrust), "{error}");
    let error = Transport::tls(&TlsFiles { cert: None, key: None, ..files.clone() }).unwrap_err();
    assert!(matches!(error, TlsError::NoServerIdentity), "{error}");
    let missing = refusal(TlsFiles { ca: Some("/nowhere/ca.pem".into()), ..files.clone() });
    assert!(missing.contains("/nowhere/ca.pem"), "{missing}");
    std::fs::write(authority.file("ca.pem"), "").unwrap();
    assert!(refusal(files.clone()).contains("no certificate"));
    let bad = TlsFiles { server_name: Some("not a name".into()), insecure: true, client_ca: None, ..files };
    assert!(refusal(bad).contains("not a name"));
    assert!(!Transport::tls(&TlsFiles::default()).unwrap().listens_with_tls());
}
