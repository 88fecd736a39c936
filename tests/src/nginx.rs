//! A real nginx of a test's own, with the configuration that srt-slurm puts in front of several frontends.

use std::fmt::Write as _;
use std::fs::File;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::http::PATIENCE;

/// A running nginx; stopped when dropped.
#[derive(Debug)]
pub struct Nginx {
    /// Where it serves.
    pub address: SocketAddr,
    folder: TempDir,
    child: Child,
}

impl Nginx {
    /// Starts it in front of `frontends`; `None`, with the reason printed, when nginx is not installed.
    #[expect(clippy::print_stdout, reason = "a skipped test says why")]
    pub async fn start(frontends: &[SocketAddr]) -> Result<Option<Self>> {
        let program = ["nginx", "/usr/sbin/nginx"].into_iter().find(|program| {
            Command::new(program).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
        });
        let Some(program) = program else {
            println!("skipped: nginx is not installed");
            return Ok(None);
        };
        let folder = TempDir::new()?;
        let address = crate::port::free()?;
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, configuration(&folder.path().to_string_lossy(), address, frontends)?)?;
        let log = File::create(folder.path().join("output.log"))?;
        let child = Command::new(program)
            .args(["-e".as_ref(), folder.path().join("error.log").as_os_str()])
            .args(["-c".as_ref(), file.as_os_str()])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let nginx = Nginx { address, folder, child };
        let ready = async {
            while std::net::TcpStream::connect(address).is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ready).await.with_context(|| nginx.output())?;
        Ok(Some(nginx))
    }

    /// What it has to say.
    pub fn output(&self) -> String {
        let read = |name| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        format!("{}{}", read("output.log"), read("error.log"))
    }
}

/// Sessions are hashed to frontends by their header; long streams, no buffering, connections kept.
fn configuration(folder: &str, address: SocketAddr, frontends: &[SocketAddr]) -> Result<String> {
    let mut servers = String::new();
    for frontend in frontends {
        write!(servers, "server {frontend}; ")?;
    }
    let user = if rustix::process::getuid().is_root() { "user root;" } else { "" };
    Ok(format!(
        r#"
daemon off;
{user}
worker_processes 1;
pid {folder}/nginx.pid;
events {{ worker_connections 2048; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 45m;
  keepalive_timeout 600s;
  map $http_x_dynamo_session_id $frontend_hash_key {{
    default $http_x_dynamo_session_id;
    "" $request_id;
  }}
  upstream frontends {{
    hash $frontend_hash_key consistent;
    {servers}
    keepalive 512;
    keepalive_timeout 600s;
  }}
  server {{
    listen {address};
    location / {{
      proxy_pass http://frontends;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 24h;
      proxy_send_timeout 24h;
    }}
  }}
}}
"#
    ))
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master process ends its own workers; it may have ended by itself.
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _gone = kill_process(pid, Signal::TERM);
        }
        let _status = self.child.wait();
    }
}
