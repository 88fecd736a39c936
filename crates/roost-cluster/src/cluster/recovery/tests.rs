use futures_util::future::FutureExt as _;
use parking_lot::Mutex;
use roost_kv::WorkerId;
use tokio::time::Instant;

use super::*;
use crate::record::Codec;

/// Answers by list; an empty slot never answers.
#[derive(Debug, Default)]
struct Answers {
    list: Mutex<Vec<Option<Result<KvAnswer, String>>>>,
    running: Mutex<(usize, usize)>,
}

impl Answers {
    fn new(list: Vec<Option<Result<KvAnswer, String>>>) -> Arc<Self> {
        Arc::new(Self { list: Mutex::new(list), running: Mutex::default() })
    }
}

impl RecoverySource for Answers {
    fn query(&self, target: Target, request: Bytes) -> BoxFuture<'static, Result<Bytes, RecoveryError>> {
        let query = KvQuery::decode(&request, target.codec).unwrap();
        assert_eq!((query.worker_id, query.dp_rank, query.start_event_id), (1, 2, Some(3)));
        let answer = self.list.lock().remove(0);
        async move {
            match answer {
                None => std::future::pending().await,
                Some(Ok(answer)) => Ok(answer.encode(target.codec).into()),
                Some(Err(text)) => Err(RecoveryError(text)),
            }
        }
        .boxed()
    }
}

fn recovery(source: Arc<dyn RecoverySource>, codec: Codec) -> Recovery {
    Recovery {
        source,
        permits: Arc::new(Semaphore::new(8)),
        timeout: Duration::from_secs(30),
        attempts: 8,
        target: Target { address: "127.0.0.1:9".parse().unwrap(), path: "p".into(), codec },
        rank: WorkerRank::new(WorkerId(1), 2),
        from: Some(3),
    }
}

fn up_to_date() -> KvAnswer {
    KvAnswer::TooNew { requested_start: Some(3), requested_end: Some(2), newest_available: 2 }
}

#[tokio::test(start_paused = true)]
async fn it_tries_again_with_growing_pauses() {
    let failed = KvAnswer::TreeDumpFailed { last_event_id: None, message: Some("busy".into()) };
    let answers = vec![
        Some(Err("refused".into())),
        None,
        Some(Ok(failed)),
        Some(Ok(KvAnswer::Error("no".into()))),
        Some(Ok(up_to_date())),
    ];
    let begin = Instant::now();
    let source = Answers::new(answers);
    let answer = recovery(source.clone(), Codec::Json).run().await;
    assert_eq!(answer, Some(up_to_date()));
    assert!(source.list.lock().is_empty());
    let pauses = Duration::from_millis(200 + 400 + 800 + 1600);
    assert_eq!(begin.elapsed().as_secs(), (pauses + Duration::from_secs(30)).as_secs());
}

#[tokio::test(start_paused = true)]
async fn it_gives_up_in_the_end() {
    let source = Answers::new((0..9).map(|_| Some(Err("refused".into()))).collect());
    assert_eq!(recovery(source.clone(), Codec::Msgpack).run().await, None);
    assert_eq!(source.list.lock().len(), 1, "eight tries");
}

#[tokio::test(start_paused = true)]
async fn few_run_at_one_time() {
    /// Notes how many calls are open at once.
    #[derive(Debug)]
    struct Slow(Arc<Answers>);
    impl RecoverySource for Slow {
        fn query(&self, target: Target, _: Bytes) -> BoxFuture<'static, Result<Bytes, RecoveryError>> {
            let counter = self.0.clone();
            async move {
                {
                    let mut running = counter.running.lock();
                    running.0 += 1;
                    running.1 = running.1.max(running.0);
                }
                sleep(Duration::from_secs(1)).await;
                counter.running.lock().0 -= 1;
                Ok(up_to_date().encode(target.codec).into())
            }
            .boxed()
        }
    }
    let answers = Arc::<Answers>::default();
    let source: Arc<dyn RecoverySource> = Arc::new(Slow(answers.clone()));
    let permits = Arc::new(Semaphore::new(3));
    let all =
        (0..10).map(|_| Recovery { permits: permits.clone(), ..recovery(source.clone(), Codec::Json) }.run());
    assert!(futures_util::future::join_all(all).await.iter().all(Option::is_some));
    assert_eq!(*answers.running.lock(), (0, 3));
}
