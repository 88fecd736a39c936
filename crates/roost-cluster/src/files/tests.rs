use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::*;

/// A web server that gives the same raw answer to every request.
struct Server {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

impl Server {
    async fn start(answer: impl Into<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, answer, requests) =
            (listener.local_addr().unwrap(), answer.into(), Arc::<AtomicUsize>::default());
        let counter = requests.clone();
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap() > 0 {}
                assert!(head.starts_with(b"GET /v1/metadata/"), "{}", String::from_utf8_lossy(&head));
                counter.fetch_add(1, Ordering::Relaxed);
                let _ = stream.write_all(&answer).await;
            }
        });
        Self { address, requests, _task: AbortOnDropHandle::new(task) }
    }

    async fn with_body(body: &str) -> Self {
        Self::start(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await
    }

    fn url(&self, name: &str) -> String {
        format!("http://{}/v1/metadata/dynamo/backend/generate/m/_base/{name}", self.address)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

fn reference(path: impl Into<String>, content: &str) -> FileRef {
    let checksum = format!("blake3:{}", blake3::hash(content.as_bytes()).to_hex());
    FileRef { path: path.into(), checksum, size: Some(content.len() as u64) }
}

struct Place {
    directory: TempDir,
    files: CardFiles,
}

impl Place {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let files = CardFiles::new(CardFilesConfig {
            idle_timeout: Duration::from_secs(20),
            ..CardFilesConfig::new(directory.path().join("cache"))
        });
        Self { directory, files }
    }

    fn write(&self, name: &str, content: &str) -> String {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Names in the cache.
    fn cached(&self) -> Vec<String> {
        let blobs = fs::read_dir(self.directory.path().join("cache/blobs"));
        blobs.into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

async fn failure(files: &CardFiles, file: &FileRef) -> String {
    files.fetch(file).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_readable_path_of_the_worker_is_used_in_place() {
    let place = Place::new();
    let path = place.write("worker/with space.json", "{}");
    assert_eq!(place.files.fetch(&reference(&path, "{}")).await.unwrap(), Path::new(&path));
    let url = format!("file://{}", path.replace(' ', "%20"));
    assert_eq!(place.files.fetch(&reference(url, "{}")).await.unwrap(), Path::new(&path));
    assert!(place.cached().is_empty());
}

#[tokio::test]
async fn the_model_path_comes_second() {
    let mut place = Place::new();
    let own = place.write("own/tokenizer.json", "right");
    let other = place.write("worker/tokenizer.json", "WRONG");
    let file = reference(&other, "right");
    let error = failure(&place.files, &file).await;
    let wrong = blake3::hash(b"WRONG").to_hex().to_string();
    for part in [other.as_str(), file.checksum.as_str(), wrong.as_str()] {
        assert!(error.contains(part), "{part} is not in {error}");
    }

    place.files.config.model_path = Some(place.directory.path().join("own"));
    assert_eq!(place.files.fetch(&file).await.unwrap(), Path::new(&own));
    for path in [
        "/nowhere/tokenizer.json",
        "hf://org/model/tokenizer.json",
        "http://127.0.0.1:1/x/tokenizer.json?v=1",
    ] {
        assert_eq!(place.files.fetch(&reference(path, "right")).await.unwrap(), Path::new(&own), "{path}");
    }
    let error = failure(&place.files, &reference("/nowhere/config.json", "right")).await;
    assert!(error.contains("/nowhere/config.json: ") && error.contains("own/config.json: "), "{error}");
}

#[tokio::test]
async fn a_download_is_verified_and_cached() {
    let place = Place::new();
    let server = Server::with_body("hello").await;
    let file = reference(server.url("tokenizer.json"), "hello");
    let path = place.files.fetch(&file).await.unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "hello");
    assert_eq!(place.files.fetch(&file).await.unwrap(), path);
    assert_eq!(server.requests(), 1, "the second one comes from the cache");

    fs::write(&path, "spoilt").unwrap();
    assert_eq!(place.files.fetch(&file).await.unwrap(), path);
    assert_eq!(fs::read_to_string(&path).unwrap(), "hello");
    assert_eq!(server.requests(), 2, "a damaged file is fetched anew");
}

#[tokio::test]
async fn bad_downloads_leave_nothing_behind() {
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nhello!\r\n0\r\n\r\n";
    let cases: [(&[u8], &str); 6] = [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nHELLO", "wrong checksum: expected blake3:"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello!", "6 bytes instead of at most 5"),
        (chunked, "more than 5 bytes"),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "404"),
        (b"HTTP/1.1 302 Found\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n", "302"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel", ""),
    ];
    for (answer, reason) in cases {
        let place = Place::new();
        let server = Server::start(answer).await;
        let file = reference(server.url("tokenizer.json"), "hello");
        let error = failure(&place.files, &file).await;
        assert!(error.contains(reason) && error.contains(&file.path), "{reason:?} is not in {error}");
        assert_eq!(server.requests(), 1);
        assert!(place.cached().is_empty(), "{reason}: {:?}", place.cached());
    }
}

#[tokio::test]
async fn references_of_no_use_say_what_to_do() {
    let mut place = Place::new();
    let error = failure(&place.files, &reference("hf://org/model/tokenizer.json", "x")).await;
    assert!(error.contains("--model-path"), "{error}");
    let error = failure(&place.files, &reference("https://host/tokenizer.json", "x")).await;
    assert!(error.contains("TLS"), "{error}");
    let error = failure(&place.files, &reference("s3://bucket/tokenizer.json", "x")).await;
    assert!(error.contains("unknown scheme"), "{error}");
    let error = failure(&place.files, &reference("file://elsewhere/x", "x")).await;
    assert!(error.contains("not a local file URL"), "{error}");
    let no_sum = FileRef { checksum: "md5:00".into(), ..reference("/x", "x") };
    assert!(failure(&place.files, &no_sum).await.contains("not blake3:HEX"));
    place.files.config.max_bytes = 3;
    let error = failure(&place.files, &reference("/x", "long")).await;
    assert!(error.contains("size is 4 bytes, the limit is 3"), "{error}");
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = failure(&place.files, &reference(format!("http://{nobody}/f"), "x")).await;
    assert!(error.contains(&nobody.to_string()), "{error}");
}

#[tokio::test]
async fn a_card_is_loaded_whole() {
    let place = Place::new();
    let file = |name: &str, content: &str| reference(place.write(name, content), content);
    let mut card = ModelCard {
        tokenizer: Some(ModelFile::HfTokenizerJson(file("tokenizer.json", "{\"model\":{}}"))),
        model_info: Some(ModelFile::HfConfigJson(file("config.json", "{\"a\":18446744073709551615}"))),
        prompt_formatter: Some(ModelFile::HfTokenizerConfigJson(file("tokenizer_config.json", "{\"b\":2}"))),
        gen_config: Some(ModelFile::HfGenerationConfigJson(file("generation_config.json", "{\"c\":3}"))),
        chat_template_file: Some(ModelFile::HfChatTemplate {
            is_custom: true,
            file: file("t.jinja", "{{ x }}"),
        }),
        ..ModelCard::default()
    };
    let loaded = place.files.load(&card).await.unwrap();
    assert!(
        matches!(&loaded.tokenizer, Some(TokenizerFile::HfJson(path)) if path.ends_with("tokenizer.json"))
    );
    assert_eq!(loaded.config.unwrap()["a"], u64::MAX);
    assert_eq!(loaded.tokenizer_config.unwrap()["b"], 2);
    assert_eq!(loaded.generation_config.unwrap()["c"], 3);
    assert_eq!(loaded.chat_template.as_deref(), Some("{{ x }}"));

    let json = file("chat_template.json", "{\"chat_template\":\"{{ y }}\"}");
    card.chat_template_file = Some(ModelFile::HfChatTemplateJson(json));
    assert_eq!(place.files.load(&card).await.unwrap().chat_template.as_deref(), Some("{{ y }}"));
    card.model_info = Some(ModelFile::HfConfigJson(file("broken.json", "{")));
    assert!(matches!(place.files.load(&card).await, Err(FilesError::Content { .. })));
    assert_eq!(place.files.load(&ModelCard::default()).await.unwrap(), LoadedFiles::default());
}

/// What a card names is only data: not the metadata service of a cloud, no device, no pipe that blocks, nothing beside
/// the model's folder.
#[tokio::test]
async fn references_of_attackers_are_refused_at_once() {
    let mut place = Place::new();
    for url in [
        "http://169.254.169.254/latest/meta-data/iam/security-credentials/",
        "http://[fe80::1]/x",
        "http://[::ffff:169.254.169.254]/x",
        "http://0.0.0.0:8000/busy_threshold",
    ] {
        let error = failure(&place.files, &reference(url, "x")).await;
        assert!(error.contains("is the address of no worker"), "{url}: {error}");
    }
    let pipe = place.directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let unsized_file = |path: &str| FileRef { size: None, ..reference(path, "x") };
    for path in ["/dev/zero", "/dev/stdin", pipe.to_str().unwrap(), "/proc/self", "/"] {
        let error = failure(&place.files, &unsized_file(path)).await;
        assert!(error.contains("no regular file") || error.contains("bytes instead of"), "{path}: {error}");
    }
    place.files.config.model_path = Some(place.directory.path().join("model"));
    place.write("secret.json", "secret");
    for path in [
        "http://127.0.0.1:1/../secret.json",
        "/nowhere/..%2Fsecret.json",
        "/x/..",
        "http://127.0.0.1:1/..?a/../secret.json",
    ] {
        let error = failure(&place.files, &reference(path, "secret")).await;
        assert!(error.contains("not available"), "{path}: {error}");
    }
}
