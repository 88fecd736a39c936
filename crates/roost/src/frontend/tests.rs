use serde_json::json;

use super::*;

fn options(url: &str) -> Options {
    Options { url: url.to_owned(), api_key: None, ca: None, certificate: None }
}

#[test]
fn urls_name_a_host_and_a_port() {
    for (url, expected) in [
        ("http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("http://router/", "router:80"),
        ("router:9", "router:9"),
        ("http://[::1]:8000/x", "[::1]:8000"),
        ("http://[::1]", "[::1]:80"),
        ("https://router", "router:443"),
        ("https://router:8443/x", "router:8443"),
    ] {
        let (Place::Network(at) | Place::Tls(at, _)) = Place::of(&options(url)).unwrap() else {
            panic!("{url} is no socket")
        };
        assert_eq!(at, expected, "{url}");
    }
    assert!(Place::of(&options("ftp://router")).unwrap_err().to_string().contains("ftp"));
    assert!(Place::of(&options("http:///x")).is_err());
}

#[test]
fn a_url_may_be_a_socket() {
    for url in ["unix:/run/roost.sock", "unix:///run/roost.sock"] {
        let Place::Socket(path) = Place::of(&options(url)).unwrap() else { panic!("{url}") };
        assert_eq!(path, PathBuf::from("/run/roost.sock"), "{url}");
    }
    assert!(Place::of(&options("unix:")).unwrap_err().to_string().contains("no socket"));
}

/// Answers one request; returns it.
async fn serve_one(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let mut request = vec![0; 1024];
    let length = stream.read(&mut request).await.unwrap();
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{\"decisions\":[]}";
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    String::from_utf8(request[..length].to_vec()).unwrap()
}

#[tokio::test]
async fn a_socket_is_asked_like_a_host() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("roost.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move { serve_one(listener.accept().await.unwrap().0).await });
    let (status, answer) = Place::Socket(path).get("/debug/routing", Some("secret")).await.unwrap();
    assert_eq!((status, &answer["decisions"]), (200, &json!([])));
    let request = server.await.unwrap();
    assert!(request.starts_with("GET /debug/routing HTTP/1.1\r\n"));
    assert!(request.contains("\r\nauthorization: Bearer secret\r\n"), "{request}");
}

/// Over TLS a frontend must show a certificate for its name, of an authority that is trusted.
#[tokio::test]
async fn a_frontend_with_tls_is_asked_when_it_is_the_right_one() {
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::ring::default_provider;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;

    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, cert.pem()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![cert.der().clone()],
            PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        // Whoever does not trust it, or looks for another, goes.
        loop {
            let stream = listener.accept().await.unwrap().0;
            if let Ok(stream) = acceptor.accept(stream).await {
                return serve_one(stream).await;
            }
        }
    });
    let trusting =
        |host: &str| Options { ca: Some(ca.clone()), ..options(&format!("https://{host}:{port}")) };
    for other in [options(&format!("https://localhost:{port}")), trusting("127.0.0.1")] {
        let Ok(frontend) = Place::of(&other) else { continue };
        let error = frontend.get("/debug/routing", None).await.unwrap_err();
        assert!(error.to_string().contains("no TLS"), "{error:#}");
    }
    let (status, answer) =
        Place::of(&trusting("localhost")).unwrap().get("/debug/routing", None).await.unwrap();
    assert_eq!((status, &answer["decisions"]), (200, &json!([])));
    assert!(server.await.unwrap().contains(&format!("host: localhost:{port}\r\n")));
}

#[test]
fn ids_are_escaped() {
    assert_eq!(escape("a b/c%ä-1"), "a%20b%2Fc%25%C3%A4-1");
}
