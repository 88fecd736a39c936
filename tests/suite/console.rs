//! The console: its state, who may see it, and the page in a real browser.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use roost_frontend::ApiKeys;
use roost_tests::{Chromium, Cluster, Options, worker_of};
use serde_json::{Value, json};
use tokio::task::block_in_place;

/// Three turns of two sessions, and one request without a session.
async fn some_traffic(cluster: &Cluster) -> Result<u64> {
    let mut home = 0;
    for turn in 0..3 {
        for session in ["alpha", "beta"] {
            let text = format!("@@hello@@ {}", "and so on, ".repeat(40 * (turn + 1)));
            let reply = cluster.chat(&text).session(session).send().await?;
            assert_eq!(reply.status, 200, "{}", reply.text());
            if session == "alpha" {
                home = worker_of(&reply.json()?);
            }
        }
    }
    assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200);
    cluster.until_idle().await?;
    Ok(home)
}

async fn state(cluster: &Cluster, session: &str) -> Result<Value> {
    let reply = cluster.get(&format!("/console/state?session={session}")).send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

#[tokio::test]
async fn the_state_is_that_of_the_router() -> Result<()> {
    let cluster = Options::new(3).start().await?;
    let home = some_traffic(&cluster).await?;
    let seen = state(&cluster, "").await?;
    assert_eq!((&seen["state"], &seen["affinity"]), (&json!("ready"), &json!(true)));
    let [pool] = &seen["pools"].as_array().cloned().unwrap_or_default()[..] else { panic!("{seen}") };
    assert_eq!(
        (&pool["model"], &pool["role"], &pool["bindings"]),
        (&json!("tiny"), &json!("aggregated"), &json!(2))
    );
    let ranks = pool["ranks"].as_array().context("ranks")?;
    let sum = |of: &str| ranks.iter().filter_map(|rank| rank[of].as_u64()).sum::<u64>();
    assert_eq!((ranks.len(), sum("placed"), sum("sessions"), sum("active_requests")), (3, 7, 2, 0));
    assert!(sum("cached_tokens") > 0 && sum("cached_tokens") < sum("asked_tokens"), "{seen}");
    assert!(ranks.iter().all(|rank| rank["state"] == "ready" && rank["address"].is_string()), "{seen}");
    let sessions = pool["sessions"]["longest"].as_array().context("sessions")?;
    let alpha = sessions.iter().find(|session| session["session"] == "alpha").context("alpha")?;
    assert_eq!(alpha["worker"], format!("{home:x}"));
    assert_eq!((&alpha["turns"], &alpha["rebinds"], &alpha["running"]), (&json!(3), &json!(0), &json!(0)));
    assert!(
        alpha["context_tokens"].as_u64() > Some(1200) && alpha["hit_rate"].as_f64() > Some(0.3),
        "{alpha}"
    );
    assert_eq!(seen["decisions"].as_array().map(Vec::len), Some(7));
    assert_eq!((&seen["curves"]["succeeded"], &seen["curves"]["active"]), (&json!(7), &json!(0)));
    assert_eq!(seen["curves"]["ttft_s"]["count"], 7);
    assert_eq!(seen["alarms"], json!([]));

    let found = state(&cluster, "lph").await?;
    assert_eq!(found["pools"][0]["sessions"]["found"], 1);
    let long = "x".repeat(100_000);
    assert_eq!(state(&cluster, &long[..5000]).await?["pools"][0]["sessions"]["found"], 0);

    // A worker that dies is told of, and its sessions are where they went.
    let at = cluster.index_of(home);
    cluster.workers[at].kill().await;
    assert_eq!(cluster.chat("@@hello@@ again").session("alpha").send().await?.status, 200);
    let seen = state(&cluster, "alpha").await?;
    let alpha = &seen["pools"][0]["sessions"]["longest"][0];
    assert_ne!(alpha["worker"], format!("{home:x}"));
    assert_eq!((&alpha["turns"], &alpha["rebinds"]), (&json!(5), &json!(1)), "the turn that failed counts");
    Ok(())
}

/// Requests without a session are told of where sessions are bound, and only there.
#[tokio::test]
async fn an_alarm_for_clients_that_name_no_session() -> Result<()> {
    for (named, codes) in [(true, &[][..]), (false, &["no_session_header"])] {
        let decode_only = Options::split(1, 1).with(|config| config.route.prefill_affinity_ttl = None);
        let cluster = decode_only.start().await?;
        for number in 0..20 {
            let request = cluster.chat("@@hello@@");
            let request = if named { request.session(&format!("s-{number}")) } else { request };
            assert_eq!(request.send().await?.status, 200);
        }
        let seen = state(&cluster, "").await?;
        let alarms = seen["alarms"].as_array().context("alarms")?;
        let told: Vec<&str> = alarms.iter().filter_map(|alarm| alarm["code"].as_str()).collect();
        assert_eq!(told, codes, "{alarms:?}");
        assert!(
            alarms
                .iter()
                .all(|alarm| alarm["text"].as_str().is_some_and(|text| text.contains("tiny (decode)")))
        );
    }
    Ok(())
}

#[tokio::test]
async fn who_may_see_it() -> Result<()> {
    let with_keys = Options::new(0).with(|config| {
        config.http.api_keys = ApiKeys::new(Some("client"), None).ok().map(Arc::new);
        config.http.admin_keys = ApiKeys::new(Some("admin"), None).ok().map(Arc::new);
    });
    let cluster = with_keys.start().await?;
    // The page tells nothing, so everybody may load it; what it shows is for those with the key.
    let page = cluster.get("/console").send().await?;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap_or_default();
    assert!(
        policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(cluster.get("/console/main.js").send().await?.status, 200);
    for (key, status) in [(None, 401), (Some("client"), 401), (Some("admin"), 200)] {
        let mut request = cluster.get("/console/state");
        if let Some(key) = key {
            request = request.header("authorization", &format!("Bearer {key}"));
        }
        assert_eq!(request.send().await?.status, status, "{key:?}");
    }
    let none = cluster.get("/console/../status").header("authorization", "Bearer client").send().await?;
    assert_eq!(none.status, 404);

    let off = Options::new(1).with(|config| config.http.admin_api = false).start().await?;
    for path in ["/console", "/console/main.js", "/console/state"] {
        assert_eq!(off.get(path).send().await?.status, 404, "{path}");
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "skipping is said")]
fn browser(width: u32, height: u32) -> Result<Option<Chromium>> {
    let browser = block_in_place(|| Chromium::start(width, height))?;
    if browser.is_none() {
        println!("skipped: there is no chromium on this machine");
    }
    Ok(browser)
}

fn address(cluster: &Cluster) -> String {
    format!("http://{}", cluster.address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_in_a_browser() -> Result<()> {
    let Some(mut browser) = browser(1280, 900)? else { return Ok(()) };
    let cluster = Options::new(3).start().await?;
    let home = some_traffic(&cluster).await?;
    let base = address(&cluster);
    block_in_place(|| {
        browser.open(&format!("{base}/console"))?;
        browser.until("document.body?.dataset.drawn >= 2")?;
        assert_eq!(browser.value("document.querySelector('#state').textContent")?, "ready");
        assert_eq!(browser.value("document.querySelectorAll('.map button').length")?, 3);
        assert_eq!(browser.value("document.querySelectorAll('#session-rows tr').length")?, 2);
        let row = browser.value("document.querySelector('#session-rows tr').innerText")?;
        assert!(
            row.as_str().is_some_and(|row| row.contains(&format!("{home:x}/0")) || row.contains("beta")),
            "{row}"
        );

        // A decision opens by a click, tells why, and stays open while the page goes on.
        browser.click(".decision")?;
        browser.until("document.querySelector('.why')")?;
        let why = browser.value("document.querySelector('.why').innerText")?;
        assert!(why.as_str().is_some_and(|why| why.contains("Placed on") && why.contains("Total")), "{why}");
        browser.until("document.body.dataset.drawn >= 4")?;
        assert_eq!(browser.value("document.querySelectorAll('.why').length")?, 1);
        assert_eq!(browser.value("document.activeElement.className")?, "decision", "the focus stays");
        browser.press("Enter")?;
        browser.until("!document.querySelector('.why')")?;
        browser.press("Enter")?;
        browser.until("document.querySelector('.why')")?;

        // What is shown stays the same element, so that selections, focus and a screen reader's place stay, too.
        let mark = "for (const e of document.querySelectorAll('.map button, #session-rows tr, .decision, .why')) e.same = true; \
                    document.body.dataset.drawn";
        let drawn = browser.value(mark)?;
        browser.until(&format!("document.body.dataset.drawn >= {} + 2", drawn.as_str().unwrap_or("0")))?;
        let changed = "[...document.querySelectorAll('.map button, #session-rows tr, .decision, .why')].filter((e) => !e.same).length";
        assert_eq!(browser.value(changed)?, 0);

        // By keyboard over the map, and into a rank.
        browser.value("document.querySelector('.map button').focus()")?;
        browser.press("ArrowRight")?;
        browser.press("Enter")?;
        browser.until("document.querySelector('#rank dl')")?;
        let rank = browser.value("document.querySelector('#rank').innerText")?;
        assert!(
            rank.as_str().is_some_and(|rank| rank.contains("hit rate") && rank.contains("address")),
            "{rank}"
        );
        let second = "document.querySelectorAll('.map button')[1].getAttribute('aria-pressed')";
        assert_eq!(browser.value(second)?, "true");
        let said = browser.value("document.querySelector('#rank-said').textContent")?;
        assert!(said.as_str().is_some_and(|said| said.contains("hit rate")), "{said}");
        let stops = "[...document.querySelectorAll('.map button')].map((tile) => tile.tabIndex)";
        assert_eq!(browser.value(stops)?, json!([-1, 0, -1]), "one stop for Tab, where one was");
        let here = "[...document.querySelectorAll('.map button')].indexOf(document.activeElement)";
        for (key, at) in [("End", 2), ("Home", 0), ("ArrowRight", 1), ("ArrowDown", 1)] {
            browser.press(key)?;
            assert_eq!(browser.value(here)?, at, "{key}: there is one row");
        }
        browser.press("Tab")?;
        assert_eq!(browser.value("document.activeElement.id")?, "search", "the map is left at once");
        browser.click("#as-table")?;
        browser.until("document.querySelectorAll('#pools tbody tr').length === 3")?;
        browser.click("#as-table")?;

        // Sessions are found by name.
        browser.value("document.querySelector('#search').focus()")?;
        browser.type_text("alph")?;
        browser.until("document.querySelectorAll('#session-rows tr').length === 1")?;
        accessible(&mut browser)?;
        colours(&mut browser)
    })?;

    // What happens is told.
    let at = cluster.index_of(home);
    cluster.workers[at].kill().await;
    assert_eq!(cluster.chat("@@hello@@ again").session("alpha").send().await?.status, 200);
    block_in_place(|| {
        browser.until("document.querySelector('#alarms .alarm')?.innerText.includes('failed lately')")?;
        browser.until("document.querySelector('#session-rows td.n:nth-of-type(6)').innerText === '1'")?;
        assert_eq!(browser.complaints(), [""; 0]);
        let asked = browser.asked();
        let foreign: Vec<_> =
            asked.iter().filter(|url| !url.starts_with(&base) && !url.starts_with("data:")).collect();
        assert!(asked.len() > 9 && foreign.is_empty(), "{foreign:?}");
        Ok(())
    })
}

/// What a screen reader is told: every control has a name, and the page its landmarks.
fn accessible(browser: &mut Chromium) -> Result<()> {
    let tree = browser.call("Accessibility.getFullAXTree", json!({}))?;
    let nodes = tree["nodes"].as_array().context("nodes")?;
    let role = |node: &Value| node["role"]["value"].as_str().unwrap_or_default().to_owned();
    for node in nodes.iter().filter(|node| node["ignored"] != true) {
        if ["button", "combobox", "checkbox", "searchbox", "link", "table"].contains(&&*role(node)) {
            let named = node["name"]["value"].as_str().is_some_and(|name| !name.is_empty());
            assert!(named || role(node) == "table", "{node}");
        }
    }
    for landmark in ["main", "navigation", "banner", "heading", "status"] {
        assert!(nodes.iter().any(|node| role(node) == landmark), "{landmark}");
    }
    Ok(())
}

/// Light and dark, as the reader prefers, and legible in both.
fn colours(browser: &mut Chromium) -> Result<()> {
    let luminance = "(() => { const c = document.createElement('canvas').getContext('2d'); const l = (name) => { \
        c.fillStyle = getComputedStyle(document.body)[name]; c.fillRect(0, 0, 1, 1); \
        const [r, g, b] = c.getImageData(0, 0, 1, 1).data; return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255; }; \
        return [l('backgroundColor'), l('color')]; })()";
    // Numbers on tiles, for each of their shades, as WCAG measures them.
    let contrasts = "(() => { const c = document.createElement('canvas').getContext('2d'); \
        const part = (v) => v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4; \
        const paint = (colour) => { c.fillStyle = colour; c.fillRect(0, 0, 1, 1); \
            const [r, g, b] = [...c.getImageData(0, 0, 1, 1).data].map(part); return 0.2126 * r + 0.7152 * g + 0.0722 * b; }; \
        const tile = document.querySelector('.map button'); const before = tile.dataset.shade; \
        const seen = [0, 1, 2, 3, 4].map((shade) => { tile.dataset.shade = shade; const style = getComputedStyle(tile); \
            paint(getComputedStyle(document.querySelector('#fleet')).backgroundColor); \
            const [a, b] = [paint(style.backgroundColor), paint(style.color)].sort((a, b) => b - a); \
            return (a + 0.05) / (b + 0.05); }); \
        tile.dataset.shade = before; return seen; })()";
    for (scheme, is_dark) in [("light", false), ("dark", true)] {
        browser.prefer(scheme)?;
        let seen = browser.value(contrasts)?;
        let legible = |shade: &Value| shade.as_f64().is_some_and(|ratio| ratio >= 4.5);
        assert!(
            seen.as_array().is_some_and(|all| all.len() == 5 && all.iter().all(legible)),
            "{scheme}: {seen}"
        );
        let seen = browser.value(luminance)?;
        let (back, text) = (seen[0].as_f64().unwrap_or(0.5), seen[1].as_f64().unwrap_or(0.5));
        assert_eq!(back < text, is_dark, "{scheme}: {seen}");
        assert!((back - text).abs() > 0.6, "{scheme}: {seen}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_page_asks_for_the_key() -> Result<()> {
    let Some(mut browser) = browser(900, 700)? else { return Ok(()) };
    let locked = Options::new(1).with(|config| {
        config.http.admin_keys = ApiKeys::new(Some("open sesame"), None).ok().map(Arc::new);
    });
    let cluster = locked.start().await?;
    block_in_place(|| {
        browser.open(&format!("{}/console", address(&cluster)))?;
        browser.until("document.querySelector('#key') && !document.querySelector('#key').hidden")?;
        browser.until("document.activeElement.id === 'key-text'")?;
        browser.type_text("wrong")?;
        browser.press("Enter")?;
        browser.until("document.querySelector('#key-said').textContent.includes('not accepted')")?;
        assert_eq!(browser.value("document.querySelectorAll('.map button').length")?, 0);
        browser.value("document.querySelector('#key-text').value = ''")?;
        browser.type_text("open sesame")?;
        browser.press("Enter")?;
        browser.until("document.querySelectorAll('.map button').length === 1")?;
        assert_eq!(browser.value("document.querySelector('#key').hidden")?, true);
        Ok(())
    })
}

/// Sessions that come and go for a while, each turn longer than the one before.
async fn lively(cluster: &Cluster, sessions: usize, turns: usize) -> Result<()> {
    let mut running = tokio::task::JoinSet::new();
    for session in 0..sessions {
        let requests: Vec<_> = (0..turns)
            .map(|turn| {
                let text = format!(
                    "session {session} {}",
                    "the next step of the plan. ".repeat(80 * (turn + 1) + session)
                );
                let body = json!({"model": "tiny", "stream": true, "max_tokens": 60 + session % 40,
                    "messages": [{"role": "user", "content": text}]});
                let request = cluster.post("/v1/chat/completions", &body);
                if session % 9 == 8 {
                    request
                } else {
                    request.session(&format!("agent-{:03}", session * 7 % 991))
                }
            })
            .collect();
        running.spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(session as u64 * 137 % 4000)).await;
            for request in requests {
                request.send().await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

fn save(browser: &mut Chromium, name: &str) -> Result<()> {
    let picture = browser.picture()?;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images");
    std::fs::create_dir_all(&folder)?;
    let mut decoder = std::process::Command::new("base64")
        .arg("-d")
        .stdin(std::process::Stdio::piped())
        .stdout(std::fs::File::create(folder.join(name))?)
        .spawn()?;
    std::io::Write::write_all(&mut decoder.stdin.take().context("a pipe")?, picture.as_bytes())?;
    decoder.wait()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "makes the pictures of docs/console.md"]
async fn pictures() -> Result<()> {
    for (workers, dp_size, height, names) in [
        (8, 2, 1060, &[("light", "console-light.png"), ("dark", "console-dark.png")][..]),
        (63, 8, 620, &[("light", "console-500.png")]),
    ] {
        let Some(mut browser) = browser(1280, height)? else { return Ok(()) };
        let timing = roost_worker::MockTiming {
            prefill_tokens_per_s: 40_000.0,
            ..roost_worker::MockTiming::default()
        };
        let mut options = Options { dp_size, timing, ..Options::new(workers) };
        options.config.route.router.affinity.ttl = Some(std::time::Duration::from_secs(600));
        let cluster = options.start().await?;
        let traffic = lively(&cluster, workers * 28, 12);
        let shots = async {
            block_in_place(|| {
                browser.open(&format!("{}/console", address(&cluster)))?;
                browser.until("document.body?.dataset.drawn >= 1")?;
                anyhow::Ok(())
            })?;
            tokio::time::sleep(std::time::Duration::from_secs(40)).await;
            block_in_place(|| {
                // One that was decided by cost.
                browser.value(
                    "[...document.querySelectorAll('.decision')].find((d) => d.innerText.includes('cost'))?.click()",
                )?;
                browser.value("document.querySelector('#sessions .scroll').style.maxHeight = '9rem'")?;
                browser.value("scrollTo({top: 0, behavior: 'instant'})")?;
                for (scheme, name) in names {
                    browser.prefer(scheme)?;
                    save(&mut browser, name)?;
                }
                anyhow::Ok(())
            })
        };
        tokio::select! {
            done = shots => done?,
            ended = traffic => ended?,
        }
    }
    Ok(())
}
