//! The servers: which ones exist, how each is started, and how they are killed with this program.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::door::{Door, Identity, Stream};
use crate::options::{CompareOptions, Cores};
use crate::procfs;
use crate::wire::Protocol;

/// Maximum time until a started server answers.
const START_TIME_MAX: Duration = Duration::from_secs(20);

/// The kinds of servers whose command line this program can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// This program's empty server.
    Empty,
    /// memcached and servers with the same flags.
    Memcached,
    /// Redis and Valkey.
    Redis,
    /// pogocache.
    Pogocache,
    /// Larder.
    Larder,
}

/// A server that can be started.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// Its name in tables and in `--only`.
    pub(crate) name: String,
    /// How it is started.
    pub(crate) family: Family,
    /// The executable.
    pub(crate) path: PathBuf,
    /// Further arguments; with `{port}` among them, all arguments.
    pub(crate) arguments: Vec<String>,
    /// What encrypts connections to it; `None` = nothing does.
    pub(crate) identity: Option<Arc<Identity>>,
}

/// The end of the name of a peer that is reached over TLS.
const TLS: &str = "-tls";
/// The end of the name of a peer that is spoken to in memcached's binary protocol.
const BINARY: &str = "-binary";
/// The end of the name of a Larder that is spoken to in RESP.
const RESP: &str = "-resp";

/// The settings with which a server is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    /// Memory limit in MiB.
    pub(crate) limit_mib: u64,
    /// Worker threads.
    pub(crate) threads: usize,
    /// Length of the empty server's value in bytes.
    pub(crate) value_bytes: u32,
    /// The cores for the server.
    pub(crate) cores: &'a Cores,
    /// The file of the flash tier, and its size in MiB.
    pub(crate) flash: Option<(&'a Path, u64)>,
    /// Larder's memory for the flash tier, as a part of the limit; `None` = its default, beside the limit.
    pub(crate) flash_memory_mib: Option<u64>,
}

impl Server {
    /// All servers of a comparison, in the order of the table. A missing server is reported in one line on stderr.
    pub(crate) fn all(options: &CompareOptions) -> Result<Vec<Self>> {
        let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
        let names = options.peer.iter().filter_map(|peer| peer.split_once('='));
        let is_tls = |name: &str| name.trim_end_matches(BINARY).trim_end_matches(RESP).ends_with(TLS);
        let encrypts = names.into_iter().any(|(name, _)| is_tls(name) && wanted(name));
        let folder = std::env::temp_dir().join(format!("larder-bench-compare-{}", std::process::id()));
        let identity = encrypts.then(|| Identity::make(&folder)).transpose()?.map(Arc::new);
        let found = |name: &str, family, path: PathBuf, arguments| {
            let identity = identity.clone().filter(|_| is_tls(name));
            let server = Self { name: name.to_owned(), family, path, arguments, identity };
            let executable = on_path(&server.path);
            if executable.is_none() {
                eprintln!("skipping {name}: there is no {}", server.path.display());
            }
            executable.map(|path| Self { path, ..server })
        };
        let mut known = vec![
            ("empty".to_owned(), Family::Empty, std::env::current_exe()?, Vec::new()),
            ("memcached".to_owned(), Family::Memcached, brought("memcached"), Vec::new()),
            ("redis".to_owned(), Family::Redis, brought("redis-server"), Vec::new()),
            ("valkey".to_owned(), Family::Redis, brought("valkey-server"), Vec::new()),
        ];
        for peer in &options.peer {
            let (name, path, arguments) = peer_parts(peer)?;
            known.push((name.to_owned(), Family::guess(name, path), path.into(), arguments));
        }
        known.push((
            "larder".to_owned(),
            Family::Larder,
            options.larder.clone(),
            words(&options.larder_args),
        ));
        for (at, (name, ..)) in known.iter().enumerate() {
            if known[..at].iter().any(|(other, ..)| other == name) {
                bail!("two servers are named `{name}`: give the peer another name");
            }
        }
        if let Some(unknown) = options.only.iter().find(|only| known.iter().all(|(name, ..)| name != *only)) {
            bail!("--only names `{unknown}`, which is none of the servers");
        }
        let wanted = known.into_iter().filter(|(name, ..)| wanted(name));
        Ok(wanted.filter_map(|(name, family, path, rest)| found(&name, family, path, rest)).collect())
    }

    /// The protocol used with the server.
    pub(crate) fn protocol(&self) -> Protocol {
        match self.family {
            Family::Redis => Protocol::Resp,
            Family::Larder if self.name.ends_with(RESP) => Protocol::Resp,
            _ if self.name.ends_with(BINARY) => Protocol::Binary,
            _ => Protocol::Text,
        }
    }

    /// The version, if the server has a flag that prints it.
    pub(crate) fn version(&self) -> Option<String> {
        if self.family == Family::Empty || self.is_template() {
            return None;
        }
        let output = Command::new(&self.path).arg("--version").stdin(Stdio::null()).output().ok()?;
        let line = String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned();
        (output.status.success() && !line.is_empty()).then_some(line)
    }

    fn is_template(&self) -> bool {
        self.arguments.iter().any(|argument| argument.contains("{port}"))
    }

    /// The program and its arguments.
    pub(crate) fn command(&self, port: u16, setting: &Setting<'_>) -> Vec<String> {
        let Setting { limit_mib, threads, value_bytes, .. } = setting;
        let mut words = vec![self.path.display().to_string()];
        let file = |which: fn(&Identity) -> &Path| match &self.identity {
            Some(identity) => which(identity).display().to_string(),
            None => String::new(),
        };
        if self.is_template() {
            words.extend(self.arguments.iter().map(|argument| {
                argument
                    .replace("{port}", &port.to_string())
                    .replace("{mib}", &limit_mib.to_string())
                    .replace("{threads}", &threads.to_string())
                    .replace("{certificate}", &file(|identity| &identity.certificate))
                    .replace("{key}", &file(|identity| &identity.key))
            }));
            return words;
        }
        let flags = match self.family {
            Family::Empty => format!("empty --port {port} --value-bytes {value_bytes} --threads {threads}"),
            Family::Memcached => {
                let user = if rustix::process::geteuid().is_root() { "-u root " } else { "" };
                format!("{user}-p {port} -U 0 -l 127.0.0.1 -t {threads} -m {limit_mib}")
            }
            Family::Redis => format!(
                "--port {port} --bind 127.0.0.1 --save  --appendonly no --io-threads {threads} \
                 --maxmemory {limit_mib}mb --maxmemory-policy allkeys-lru"
            ),
            Family::Pogocache => {
                format!("-h 127.0.0.1 -p {port} --threads {threads} --maxmemory {limit_mib}mb")
            }
            Family::Larder if setting.flash.is_some() => format!("serve -p {port} -U 0 -t {threads}"),
            Family::Larder => format!("serve -p {port} -U 0 -t {threads} -m {limit_mib}"),
        };
        // Two blanks in a row stand for an empty argument.
        words.extend(flags.split(' ').map(str::to_owned));
        if let Some((path, mib)) = setting.flash {
            words.extend(self.flash_flags(path, mib, setting));
        }
        if let Some(identity) = &self.identity {
            words.extend(self.tls_flags(identity, port));
        }
        words.extend(self.arguments.iter().cloned());
        words
    }

    /// Larder's flash memory is part of the limit, as extstore's item headers are part of memcached's, unless the load
    /// asks for the default.
    fn flash_flags(&self, path: &Path, mib: u64, setting: &Setting<'_>) -> Vec<String> {
        let (path, limit_mib) = (path.display(), setting.limit_mib);
        match (self.family, setting.flash_memory_mib) {
            (Family::Larder, Some(flash_mib)) => words(&format!(
                "--flash {path}:{mib}m --flash-memory {flash_mib}m -m {}",
                limit_mib - flash_mib
            )),
            (Family::Larder, None) => words(&format!("--flash {path}:{mib}m -m {limit_mib}")),
            // extstore's default minimum is 512 B, so that no small item would go to the file.
            _ => words(&format!("-o ext_path={path}:{mib}m,ext_item_size=32")),
        }
    }

    fn tls_flags(&self, identity: &Identity, port: u16) -> Vec<String> {
        let (certificate, key) = (identity.certificate.display(), identity.key.display());
        match self.family {
            Family::Memcached | Family::Larder => {
                words(&format!("-Z -o ssl_chain_cert={certificate},ssl_key={key}"))
            }
            Family::Redis => words(&format!(
                "--port 0 --tls-port {port} --tls-cert-file {certificate} --tls-key-file {key} --tls-ca-cert-file \
                 {certificate} --tls-auth-clients no"
            )),
            Family::Empty | Family::Pogocache => Vec::new(),
        }
    }

    /// Whether the server can put items on flash.
    pub(crate) fn has_flash(&self) -> bool {
        matches!(self.family, Family::Memcached | Family::Larder)
    }

    /// Starts the server on a free port and waits until it answers.
    pub(crate) fn start(&self, setting: &Setting<'_>) -> Result<Process> {
        let port = free_port()?;
        let command = self.command(port, setting);
        let child = Command::new(std::env::current_exe()?)
            .args(["launch", "--cores", &setting.cores.to_string()])
            .args(["--parent", &std::process::id().to_string(), "--"])
            .args(&command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut process = Process { child, door: Door { address, identity: self.identity.clone() } };
        process.wait_until_it_answers(self.protocol()).with_context(|| format!("`{}`", command.join(" ")))?;
        Ok(process)
    }
}

impl Family {
    /// The family of a peer, from its name or from the name of its executable; memcached if neither is known.
    fn guess(name: &str, path: &str) -> Self {
        let file = Path::new(path).file_name().map(|file| file.to_string_lossy().to_lowercase());
        let name = name.to_lowercase();
        let says = |word: &str| name.contains(word) || file.as_ref().is_some_and(|file| file.contains(word));
        if says("redis") || says("valkey") {
            Self::Redis
        } else if says("pogocache") {
            Self::Pogocache
        } else if says("larder") {
            Self::Larder
        } else {
            Self::Memcached
        }
    }
}

/// Splits `name=path[:arguments]`.
fn peer_parts(text: &str) -> Result<(&str, &str, Vec<String>)> {
    let (name, rest) =
        text.split_once('=').with_context(|| format!("--peer {text}: want name=path[:args]"))?;
    let (path, arguments) = rest.split_once(':').unwrap_or((rest, ""));
    if name.is_empty() || path.is_empty() {
        bail!("--peer {text}: want name=path[:args]");
    }
    Ok((name, path, words(arguments)))
}

fn words(arguments: &str) -> Vec<String> {
    arguments.split_ascii_whitespace().map(str::to_owned).collect()
}

/// Where `tests/peers.sh` puts today's releases, from the folder of the repository.
const PEERS: &str = ".tools/peers";

/// The program of that name that `tests/peers.sh` has brought, or else its bare name, which is looked up on `PATH`.
fn brought(program: &str) -> PathBuf {
    let path = Path::new(PEERS).join(program);
    if path.is_file() { path } else { program.into() }
}

/// The executable `path` names, looked up on PATH if it is a bare name.
pub(crate) fn on_path(path: &Path) -> Option<PathBuf> {
    if path.components().count() > 1 {
        return path.is_file().then(|| path.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(path)).find(|file| file.is_file())
}

/// A port that was free a moment ago. Another program may have taken it since.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A running server. It is killed when this value is dropped, and by the kernel if this program ends in another way.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// The way to it.
    pub(crate) door: Door,
}

impl Process {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_it_answers(&mut self, protocol: Protocol) -> Result<()> {
        let deadline = Instant::now() + START_TIME_MAX;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended at once ({status})");
            }
            match self.door.connect() {
                Ok(stream) => return greet(stream, protocol),
                Err(error) if Instant::now() > deadline => bail!("it does not listen: {error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Waits until the server is idle (done with growing tables and tidying up): below a twentieth of a core for 0.3
    /// s. Returns false if it was still busy after `patience`.
    pub(crate) fn settle(&self, patience: Duration) -> Result<bool> {
        let deadline = Instant::now() + patience;
        let mut quiet = 0;
        while Instant::now() < deadline {
            let mut meter = procfs::CpuMeter::new(self.pid())?;
            std::thread::sleep(Duration::from_millis(100));
            quiet = if meter.sample()? < Duration::from_millis(5) { quiet + 1 } else { 0 };
            if quiet == 3 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Sends a harmless request and waits for any reply.
fn greet(mut stream: Stream, protocol: Protocol) -> Result<()> {
    stream.socket().set_read_timeout(Some(START_TIME_MAX))?;
    let greeting: &[u8] = match protocol {
        Protocol::Text => b"version\r\n",
        Protocol::Resp => b"*1\r\n$4\r\nPING\r\n",
        Protocol::Binary => &[0x80, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    };
    stream.write_all(greeting)?;
    let read = stream.read(&mut [0; 4096]).context("it listens, but does not answer")?;
    if read == 0 {
        bail!("it listens, but hangs up");
    }
    Ok(())
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Replaces this process by `program` on `cores`, to be killed by the kernel as soon as `parent` ends. Returns only
/// on failure.
pub(crate) fn launch(cores: &Cores, parent: i32, program: &[String]) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        bail!("the parent is gone");
    }
    procfs::pin(&cores.0).with_context(|| format!("run on cores {cores}"))?;
    let (name, arguments) = program.split_first().context("no program")?;
    Err(Command::new(name).args(arguments).exec()).with_context(|| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_taken_apart() {
        let (name, path, arguments) =
            peer_parts("lfu=/usr/bin/redis-server:--maxmemory-policy allkeys-lfu").expect("a good peer");
        assert_eq!((name, path), ("lfu", "/usr/bin/redis-server"));
        assert_eq!(arguments, ["--maxmemory-policy", "allkeys-lfu"]);
        assert_eq!(Family::guess(name, path), Family::Redis);
        assert_eq!(Family::guess("new", "/opt/memcached-1.6.45/memcached"), Family::Memcached);
        assert_eq!(Family::guess("pogocache", "/opt/p"), Family::Pogocache);
        assert!(peer_parts("nopath").is_err() && peer_parts("x=").is_err());
    }

    #[test]
    fn commands_carry_the_setting() {
        let cores = Cores(vec![0]);
        let setting = Setting {
            limit_mib: 64,
            threads: 2,
            value_bytes: 32,
            cores: &cores,
            flash: None,
            flash_memory_mib: Some(16),
        };
        let server = |family, arguments: &[&str]| Server {
            name: "x".to_owned(),
            family,
            path: "/bin/x".into(),
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            identity: None,
        };
        let larder = server(Family::Larder, &[]).command(1234, &setting);
        assert_eq!(larder.join(" "), "/bin/x serve -p 1234 -U 0 -t 2 -m 64");
        let behind = Setting { flash: Some((Path::new("/x/f"), 512)), ..setting };
        let larder = server(Family::Larder, &[]).command(1, &behind).join(" ");
        assert!(larder.ends_with("-t 2 --flash /x/f:512m --flash-memory 16m -m 48"), "{larder}");
        let by_default = Setting { flash_memory_mib: None, ..behind };
        let larder = server(Family::Larder, &[]).command(1, &by_default).join(" ");
        assert!(larder.ends_with("-t 2 --flash /x/f:512m -m 64"), "{larder}");
        let memcached = server(Family::Memcached, &[]).command(1, &behind).join(" ");
        assert!(memcached.ends_with("-m 64 -o ext_path=/x/f:512m,ext_item_size=32"), "{memcached}");
        let redis = server(Family::Redis, &["--hz", "1"]).command(1, &setting);
        let save = redis.iter().position(|word| word == "--save").expect("--save is there");
        assert_eq!((redis[save + 1].as_str(), redis[save + 2].as_str()), ("", "--appendonly"));
        assert_eq!(&redis[redis.len() - 2..], ["--hz", "1"]);
        let template = server(Family::Memcached, &["epoll", "{port}", "{mib}"]).command(7, &setting);
        assert_eq!(template, ["/bin/x", "epoll", "7", "64"]);
    }

    #[test]
    fn free_ports_can_be_taken() {
        let port = free_port().expect("a port");
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    }
}
