//! Who may come in: TLS, API keys, browsers, a socket in the file system.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use roost_frontend::{ApiKeys, CorsOrigins};
use roost_tests::{Cluster, MODEL, Options, PATIENCE, Reply};
use roost_wire::{ListenTls, TlsFiles};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// An authority, and a folder for what it certifies.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    cert: PathBuf,
}

impl Authority {
    fn new() -> Result<Self> {
        let folder = TempDir::new()?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let cert = folder.path().join("ca.pem");
        std::fs::write(&cert, params.self_signed(&key)?.pem())?;
        Ok(Authority { issuer: Issuer::new(params, key), cert, folder })
    }

    /// Certificate and key for this host, as files; again for a renewed one.
    fn certify(&self, name: &str) -> Result<(PathBuf, PathBuf)> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let key = KeyPair::generate()?;
        let cert = self.folder.path().join(format!("{name}.pem"));
        let private = self.folder.path().join(format!("{name}.key"));
        std::fs::write(&cert, params.signed_by(&key, &self.issuer)?.pem())?;
        std::fs::write(&private, key.serialize_pem())?;
        Ok((cert, private))
    }

    /// A client that trusts this authority, perhaps with a certificate of its own.
    fn client(&self, own: Option<&(PathBuf, PathBuf)>, protocols: &[&[u8]]) -> Result<TlsConnector> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.cert)?)?;
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => builder.with_client_auth_cert(
                vec![CertificateDer::from_pem_file(cert)?],
                PrivateKeyDer::from_pem_file(key)?,
            )?,
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

async fn dial(cluster: &Cluster, client: &TlsConnector) -> Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(cluster.address).await?;
    Ok(client.connect(ServerName::try_from("localhost")?, socket).await?)
}

/// One request of HTTP/1.1 over any stream; the whole answer as text.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> Result<String> {
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut text)).await.context("no answer")??;
    Ok(text)
}

fn hello() -> String {
    let body = json!({"model": MODEL, "messages": [{"role": "user", "content": "@@hello@@"}]}).to_string();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn tls(files: TlsFiles) -> Result<Arc<ListenTls>> {
    let tls = ListenTls::load(&files, &[b"h2", b"http/1.1"])?;
    tls.map(Arc::new).context("the files ask for TLS")
}

#[tokio::test]
async fn tls_serves_both_protocols_and_renewed_certificates() -> Result<()> {
    let authority = Authority::new()?;
    let (cert, key) = authority.certify("server")?;
    let listen = tls(TlsFiles {
        cert: Some(cert),
        key: Some(key),
        handshake_timeout: Duration::from_millis(300),
        ..TlsFiles::default()
    })?;
    let cluster = Options { tls: Some(Arc::clone(&listen)), ..Options::new(0) };
    let mut cluster = cluster.start().await?;
    cluster.add_worker(MODEL).await?;
    let client = authority.client(None, &[b"http/1.1"])?;
    let ready = async || -> Result<bool> {
        let ask = "GET /v1/models/tiny/ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        Ok(exchange(dial(&cluster, &client).await?, ask).await?.starts_with("HTTP/1.1 200 "))
    };
    cluster.until("the worker is there", ready).await?;
    let text = exchange(dial(&cluster, &client).await?, &hello()).await?;
    assert!(text.starts_with("HTTP/1.1 200 ") && text.contains("\"hello\""), "{text}");

    let stream = dial(&cluster, &authority.client(None, &[b"h2", b"http/1.1"])?).await?;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let first = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec);
    let (client2, connection) = h2::client::handshake(stream).await?;
    let driving = tokio::spawn(connection);
    let request = http::Request::get("https://localhost/live").body(())?;
    let (answer, _) = client2.ready().await?.send_request(request, true)?;
    assert_eq!(answer.await?.status(), 200);
    driving.abort();

    // Who speaks plainly, or says nothing, is let go and disturbs nobody.
    let plain = exchange(TcpStream::connect(cluster.address).await?, &hello()).await;
    assert!(plain.is_err() || plain.is_ok_and(|text| !text.contains("HTTP/1.1 200")));
    let mut silent = TcpStream::connect(cluster.address).await?;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, silent.read_to_end(&mut rest)).await.context("still open")?;

    authority.certify("server")?;
    listen.refresh()?;
    // A client that has been here resumes its session and is shown nothing.
    let stream = dial(&cluster, &authority.client(None, &[])?).await?;
    assert_ne!(stream.get_ref().1.peer_certificates().map(<[_]>::to_vec), first, "the renewed one is shown");
    Ok(())
}

#[tokio::test]
async fn mutual_tls_lets_in_whom_the_authority_knows() -> Result<()> {
    let (authority, stranger) = (Authority::new()?, Authority::new()?);
    let (cert, key) = authority.certify("server")?;
    let listen = tls(TlsFiles {
        cert: Some(cert),
        key: Some(key),
        client_ca: Some(authority.cert.clone()),
        ..TlsFiles::default()
    })?;
    let cluster = Options { tls: Some(listen), ..Options::new(0) }.start().await?;
    let live = "GET /live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let known = authority.certify("client")?;
    let text = exchange(dial(&cluster, &authority.client(Some(&known), &[])?).await?, live).await?;
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    for own in [None, Some(stranger.certify("client")?)] {
        let client = authority.client(own.as_ref(), &[])?;
        // With TLS 1.3 a client learns of it with the first answer only.
        let refused = match dial(&cluster, &client).await {
            Ok(stream) => exchange(stream, live).await.is_err(),
            Err(_) => true,
        };
        assert!(refused, "with {own:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_socket_in_the_file_system_serves_as_well() -> Result<()> {
    let folder = TempDir::new()?;
    let path = folder.path().join("roost.sock");
    let cluster = Options { unix_socket: Some(path.clone()), ..Options::new(1) }.start().await?;
    let text = exchange(UnixStream::connect(&path).await?, &hello()).await?;
    assert!(text.starts_with("HTTP/1.1 200 ") && text.contains("\"hello\""), "{text}");
    assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200);
    Ok(())
}

fn file(folder: &TempDir, text: &str) -> Result<PathBuf> {
    let path = folder.path().join("keys");
    std::fs::write(&path, text)?;
    Ok(path)
}

async fn with_keys(client: &str, admin: Option<&Path>) -> Result<Cluster> {
    let keys = ApiKeys::new(Some(client), None)?;
    let admin = admin.map(|file| ApiKeys::new(None, Some(file))).transpose()?;
    let mut cluster = Options::new(0)
        .with(|c| {
            c.http.api_keys = Some(Arc::new(keys));
            c.http.admin_keys = admin.map(Arc::new);
            c.http.paths.live = "/healthz".into();
        })
        .start()
        .await?;
    cluster.add_worker(MODEL).await?;
    let ready = format!("/v1/models/{MODEL}/ready");
    cluster
        .until("the worker is there", async || {
            Ok(cluster.get(&ready).header("authorization", &format!("Bearer {client}")).send().await?.status
                == 200)
        })
        .await?;
    Ok(cluster)
}

#[tokio::test]
async fn a_key_opens_the_api_and_another_one_the_administration() -> Result<()> {
    let folder = TempDir::new()?;
    let cluster = with_keys("sk-client", Some(&file(&folder, "# operators\nsk-admin\n")?)).await?;
    let routing = "/debug/routing";
    for (path, key, status) in [
        ("/health", None, 200),
        ("/healthz", None, 200),
        ("/live", None, 401),
        ("/ready", None, 200),
        ("/metrics", None, 200),
        ("/v1/models", None, 401),
        ("/v1/models", Some("sk-client"), 200),
        ("/v1/models", Some("sk-clien"), 401),
        ("/v1/models", Some("sk-admin"), 401),
        ("/nope", None, 401),
        ("/nope", Some("sk-client"), 404),
        (routing, Some("sk-client"), 401),
        (routing, Some("sk-admin"), 200),
        ("/busy_threshold", None, 401),
        ("/busy_threshold", Some("sk-admin"), 200),
    ] {
        let mut request = cluster.get(path);
        if let Some(key) = key {
            request = request.header("authorization", &format!("Bearer {key}"));
        }
        let reply = request.send().await?;
        assert_eq!(reply.status, status, "{path} with {key:?}: {}", reply.text());
    }
    let chat = cluster.chat("@@hello@@");
    assert_eq!(
        chat.clone().header("x-api-key", "sk-client").send().await?.status,
        200,
        "as Anthropic's clients do"
    );
    let messages = cluster.post("/v1/messages", &json!({})).send().await?;
    let envelope = messages.json()?;
    assert_eq!(messages.status, 401);
    assert_eq!(
        (&envelope["type"], &envelope["error"]["type"]),
        (&json!("error"), &json!("authentication_error"))
    );
    let refused = chat.clone().header("authorization", "Bearer sk-secret-attempt").send().await?;
    let error = refused.json()?["error"].clone();
    assert_eq!(refused.status, 401);
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("invalid_request_error"), &json!("invalid_api_key"))
    );
    assert!(error["message"].as_str().is_some_and(|text| text.starts_with("Incorrect API key provided")));
    assert!(!refused.text().contains("sk-secret-attempt"), "what was shown is not repeated");
    let missing = chat.send().await?;
    assert_eq!((missing.status, missing.header("www-authenticate")), (401, Some("Bearer")));
    assert!(missing.json()?["error"]["code"].is_null());
    Ok(())
}

/// Without keys of their own the administrative routes are not more open than the rest.
#[tokio::test]
async fn one_key_opens_everything() -> Result<()> {
    let cluster = with_keys("sk-client", None).await?;
    assert_eq!(cluster.get("/busy_threshold").send().await?.status, 401);
    let open = cluster.get("/busy_threshold").header("authorization", "Bearer sk-client").send().await?;
    assert_eq!(open.status, 200);
    Ok(())
}

fn allowed(reply: &Reply) -> Option<&str> {
    reply.header("access-control-allow-origin")
}

#[tokio::test]
async fn pages_of_named_origins_may_call() -> Result<()> {
    let page = "https://chat.example.com";
    let closed = Options::new(0).start().await?;
    let asked = closed.get("/v1/models").method("OPTIONS").header("origin", page).send().await?;
    assert_eq!((asked.status, allowed(&asked)), (405, None), "off by default");

    let keys = Arc::new(ApiKeys::new(Some("sk-client"), None)?);
    let origins = CorsOrigins::parse(page).map_err(anyhow::Error::msg)?;
    let cluster = Options::new(0)
        .with(|c| (c.http.cors, c.http.api_keys) = (Some(origins), Some(keys)))
        .start()
        .await?;
    let asked = cluster
        .get("/v1/chat/completions")
        .method("OPTIONS")
        .header("origin", page)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,content-type,x-stainless-os")
        .send()
        .await?;
    assert_eq!((asked.status, allowed(&asked)), (200, Some(page)), "asked without a key, as browsers do");
    let headers = asked.header("access-control-allow-headers").unwrap_or_default();
    assert!(headers.contains("authorization") && headers.contains("x-stainless-os"), "{headers}");
    let called = cluster.get("/v1/models").header("origin", page).header("authorization", "Bearer sk-client");
    let called = called.send().await?;
    assert_eq!((called.status, allowed(&called)), (200, Some(page)));
    let refused = cluster.get("/v1/models").header("origin", page).send().await?;
    assert_eq!((refused.status, allowed(&refused)), (401, Some(page)), "the page can read why");
    let other = cluster.get("/v1/models").header("origin", "https://evil.example").send().await?;
    assert_eq!(allowed(&other), None);
    Ok(())
}
