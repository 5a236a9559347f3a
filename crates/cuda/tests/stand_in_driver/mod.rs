//! The stand-in for the CUDA driver: building it, running a test with it, requesting its failures.

use std::ffi::{CString, c_char, c_longlong};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use libloading::Library;

const IN_CHILD: &str = "LARDER_TEST_IN_CHILD";
/// The longest time that a child process may take. A test takes seconds.
const CHILD_LIFE_MAX: Duration = Duration::from_secs(120);

/// Compiles C++ into a library `libcuda.so.1` in the folder with this name, and returns the folder.
fn compile(folder: &str, source: &Path) -> PathBuf {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    // Another test run may be doing the same. Renaming makes each library appear complete.
    let made = folder.join(format!("made.{}", std::process::id()));
    let compiler = ["c++", "g++", "clang++"].into_iter().find(|compiler| {
        Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    let compiler = compiler.expect("these tests need a C++ compiler: none of c++, g++, clang++ is installed");
    let output = Command::new(compiler)
        .args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-pthread", "-I"])
        .arg(crate_root.join("kernels"))
        .args(["-x", "c++"])
        .arg(source)
        .arg("-o")
        .arg(&made)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Both names, so that a real driver of this machine is not found first.
    for name in ["libcuda.so", "libcuda.so.1"] {
        let link = folder.join(format!("{name}.{}", std::process::id()));
        std::fs::hard_link(&made, &link).unwrap();
        std::fs::rename(&link, folder.join(name)).unwrap();
    }
    std::fs::remove_file(made).unwrap();
    folder
}

/// The folder that contains the stand-in.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand_in_driver/driver.cpp");
        compile("stand_in_driver", &source)
    })
}

/// A folder that contains a library with the driver's name but only one function.
fn incomplete_folder() -> PathBuf {
    let source =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("incomplete.{}.cpp", std::process::id()));
    std::fs::write(&source, "extern \"C\" int cuInit(unsigned) { return 0; }\n").unwrap();
    let folder = compile("incomplete_driver", &source);
    std::fs::remove_file(source).unwrap();
    folder
}

/// The driver that a test finds.
pub(crate) enum Driver {
    /// The driver of the machine, which usually has none.
    OfTheMachine,
    /// The stand-in.
    StandIn,
    /// A library with the right name but only one of the functions.
    Incomplete,
}

/// Runs the test with this name in a child process that finds this driver, with these requests for failures.
/// Returns what the child wrote to stderr. In the child process the function returns `None`, and the test does its
/// work.
pub(crate) fn in_child(test: &str, driver: Driver, orders: &str) -> Option<String> {
    if std::env::var_os(IN_CHILD).is_some() {
        std::thread::spawn(|| {
            std::thread::sleep(CHILD_LIFE_MAX);
            eprintln!("it hangs");
            std::process::abort();
        });
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
        return None;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(IN_CHILD, "1")
        .env("STAND_IN", orders);
    match driver {
        Driver::OfTheMachine => child.env_remove("LD_LIBRARY_PATH"),
        Driver::StandIn => child.env("LD_LIBRARY_PATH", folder()),
        Driver::Incomplete => child.env("LD_LIBRARY_PATH", incomplete_folder()),
    };
    let output = child.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test} in its own process: {}\n{out}\n{err}", output.status);
    assert!(out.contains("1 passed"), "{test} is no test\n{out}");
    Some(err.into_owned())
}

/// The lines of a log that are warnings.
pub(crate) fn warnings(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains(" WARN ")).collect()
}

/// The stand-in that this process uses as its driver.
pub(crate) struct StandIn {
    library: Library,
}

impl StandIn {
    pub(crate) fn find() -> StandIn {
        // SAFETY: the crate loads the same library. Its initializers do nothing.
        StandIn { library: unsafe { Library::new("libcuda.so.1") }.unwrap() }
    }

    /// Requests a failure, see `driver.cpp`.
    pub(crate) fn set(&self, order: &str, value: i64) {
        let order = CString::new(order).unwrap();
        // SAFETY: the function has this type.
        unsafe {
            let set = self
                .library
                .get::<unsafe extern "C" fn(*const c_char, c_longlong)>(b"stand_in_set\0")
                .unwrap();
            set(order.as_ptr(), value);
        }
    }

    fn number(&self, name: &str) -> i64 {
        // SAFETY: every function that is called this way has this type.
        unsafe { self.library.get::<unsafe extern "C" fn() -> c_longlong>(name.as_bytes()).unwrap()() }
    }

    /// The number of objects and allocations that still exist.
    pub(crate) fn live(&self) -> i64 {
        self.number("stand_in_live")
    }

    /// The largest amount of device memory that was allocated at any time, in bytes.
    pub(crate) fn device_bytes_max(&self) -> i64 {
        self.number("stand_in_device_bytes_max")
    }

    /// The number of kernels that were started.
    pub(crate) fn launches(&self) -> i64 {
        self.number("stand_in_launches")
    }

    /// The number of kernels that have ended.
    pub(crate) fn ended(&self) -> i64 {
        self.number("stand_in_ended")
    }
}
