//! A network in memory whose delays and faults follow from a seed, for tests under paused time.
//!
//! Connections behave like TCP, with bounded buffers in both directions. What happens to one is decided when it is
//! made: nothing, a refusal, a reset after so many bytes, or a peer that vanishes without a word. Bytes of one
//! connection stay in order; those of different connections overtake each other.

mod pipe;

use std::{
    collections::HashMap,
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{Mutex as AsyncMutex, mpsc},
    time,
};

use self::pipe::{Fate, Pipe, Reader, Writer};

/// Time after which a vanished peer is noticed, as TCP keep-alive does in the end.
const NOTICE: Duration = Duration::from_secs(120);
/// Connections that wait to be accepted.
const BACKLOG: usize = 1024;

/// What goes wrong, and how often.
#[derive(Debug, Clone, PartialEq)]
pub struct Weather {
    /// Longest delay of a piece of data.
    pub delay: Duration,
    /// Largest piece in which data arrives, in bytes.
    pub piece: usize,
    /// Share of connections that are refused.
    pub refused: f64,
    /// Share of connections that are never made.
    pub unanswered: f64,
    /// Share of connections that are reset on the way.
    pub reset: f64,
    /// Share of connections whose peers vanish for each other without a word.
    pub vanished: f64,
    /// Largest number of bytes that pass before a reset or vanishing.
    pub lifetime: usize,
}

impl Weather {
    /// Nothing goes wrong.
    #[must_use]
    pub fn calm() -> Self {
        Self {
            delay: Duration::from_millis(1),
            piece: 64 * 1024,
            refused: 0.0,
            unanswered: 0.0,
            reset: 0.0,
            vanished: 0.0,
            lifetime: 1,
        }
    }

    /// Everything goes wrong at times.
    #[must_use]
    pub fn storm() -> Self {
        Self {
            delay: Duration::from_millis(50),
            piece: 256,
            refused: 0.05,
            unanswered: 0.05,
            reset: 0.2,
            vanished: 0.1,
            lifetime: 4096,
        }
    }
}

/// The network; clones are the same one.
#[derive(Clone)]
pub struct Network(Arc<Mutex<Inner>>);

struct Inner {
    random: fastrand::Rng,
    weather: Weather,
    next_port: u16,
    listeners: HashMap<SocketAddr, mpsc::Sender<(Stream, SocketAddr)>>,
}

impl Network {
    /// A network whose accidents follow from `seed`.
    #[must_use]
    pub fn new(seed: u64, weather: Weather) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self(Arc::new(Mutex::new(Inner { random, weather, next_port: 40_000, listeners: HashMap::new() })))
    }

    /// Changes what goes wrong with connections made from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.0.lock().weather = weather;
    }

    /// Listens; port 0 picks a free one.
    ///
    /// # Errors
    /// The address is taken.
    pub fn bind(&self, mut address: SocketAddr) -> io::Result<Listener> {
        let mut inner = self.0.lock();
        if address.port() == 0 {
            address.set_port(inner.port());
        }
        if inner.listeners.get(&address).is_some_and(|taken| !taken.is_closed()) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let (sender, incoming) = mpsc::channel(BACKLOG);
        inner.listeners.insert(address, sender);
        Ok(Listener { address, incoming: AsyncMutex::new(incoming) })
    }

    /// Connects.
    ///
    /// # Errors
    /// Nobody listens there, or the weather is bad.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<Stream> {
        let (delay, outcome) = self.0.lock().dial(address);
        time::sleep(delay).await;
        match outcome {
            Dial::Refused => Err(io::ErrorKind::ConnectionRefused.into()),
            Dial::Unanswered => std::future::pending().await,
            Dial::Made { listener, ours, theirs, from } => {
                listener
                    .try_send((theirs, from))
                    .map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
                Ok(ours)
            }
        }
    }
}

enum Dial {
    Refused,
    Unanswered,
    Made { listener: mpsc::Sender<(Stream, SocketAddr)>, ours: Stream, theirs: Stream, from: SocketAddr },
}

impl Inner {
    fn port(&mut self) -> u16 {
        self.next_port += 1;
        self.next_port
    }

    fn dial(&mut self, address: SocketAddr) -> (Duration, Dial) {
        let weather = self.weather.clone();
        let delay = weather.delay.mul_f64(self.random.f64());
        let mut luck = self.random.f64();
        let mut happens = |share: f64| {
            luck -= share;
            luck < 0.0
        };
        let listener = self.listeners.get(&address).filter(|listener| !listener.is_closed()).cloned();
        let (Some(listener), false) = (listener, happens(weather.refused)) else {
            return (delay, Dial::Refused);
        };
        if happens(weather.unanswered) {
            return (delay, Dial::Unanswered);
        }
        let after = self.random.usize(..weather.lifetime.max(1));
        let fate = if happens(weather.reset) {
            Fate::Reset { after }
        } else if happens(weather.vanished) {
            Fate::Vanished { after }
        } else {
            Fate::Kept
        };
        let from = SocketAddr::new(address.ip(), self.port());
        let pipe = |seed: u64| Pipe::new(fastrand::Rng::with_seed(seed), fate, weather.delay, weather.piece);
        let (up, down) = (pipe(self.random.u64(..)), pipe(self.random.u64(..)));
        let ours_back = up.clone();
        let ours =
            Stream { reader: Reader::new(down.clone()), writer: Writer::new(up.clone(), down.clone()) };
        let theirs = Stream { reader: Reader::new(up), writer: Writer::new(down, ours_back) };
        (delay, Dial::Made { listener, ours, theirs, from })
    }
}

/// Accepts simulated connections.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    incoming: AsyncMutex<mpsc::Receiver<(Stream, SocketAddr)>>,
}

impl Listener {
    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts the next connection. Cancel safe.
    ///
    /// # Errors
    /// The network is gone.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        self.incoming.lock().await.recv().await.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

/// One end of a simulated connection.
#[derive(Debug)]
pub struct Stream {
    reader: Reader,
    writer: Writer,
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.reader.poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.writer.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer.close();
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("weather", &self.0.lock().weather).finish_non_exhaustive()
    }
}
