//! The dashboard in a real browser, driven by WebDriver (W3C); and a real Prometheus that scrapes. Both are skipped where
//! there is no `chromedriver`, or no `prometheus`.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::rest::http::{Cluster, answer};

/// A browser without a window.
struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    /// Starts a browser of this size, pixels. None: there is none on this machine.
    fn start(width: u32, height: u32, dark: bool) -> Option<Self> {
        let driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut driver = driver.inspect_err(|e| eprintln!("skipped: chromedriver: {e}")).ok()?;
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map(Result::unwrap);
        let port = lines
            .find_map(|line| line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse().ok())
            .unwrap();
        // Whatever else it says is read, so that it never waits.
        std::thread::spawn(move || lines.for_each(drop));
        let mut browser = Self { driver, port, session: String::new() };
        let scheme = if dark { "0" } else { "1" };
        let args = json!([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            format!("--window-size={width},{height}"),
            format!("--blink-settings=preferredColorScheme={scheme}"),
        ]);
        let wanted = json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": args}}}});
        let made = browser.ask("POST", "/session", &wanted);
        browser.session = format!("/session/{}", made["sessionId"].as_str().unwrap());
        Some(browser)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        let value = answer(&mut stream).json()["value"].clone();
        assert!(value.get("error").is_none(), "{method} {path}: {value}");
        value
    }

    fn own(&self, method: &str, path: &str, body: &Value) -> Value {
        self.ask(method, &format!("{}{path}", self.session), body)
    }

    fn open(&self, url: &str) {
        self.own("POST", "/url", &json!({"url": url}));
    }

    fn run(&self, script: &str) -> Value {
        self.own("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    fn click(&self, selector: &str) {
        let found = self.own("POST", "/element", &json!({"using": "css selector", "value": selector}));
        let id = found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        self.own("POST", &format!("/element/{id}/click"), &json!({}));
    }

    /// Returns what axe-core finds on the page that keeps people from using it.
    fn barriers(&self, axe: &str) -> Vec<String> {
        self.run(axe);
        let script = "const done = arguments[0];
            axe.run(document).then(found => done(found.violations
                .filter(rule => rule.impact === 'serious' || rule.impact === 'critical')
                .map(rule => `${rule.id}: ${rule.help}: ${rule.nodes[0].html}`)), error => done([`${error}`]));";
        let found = self.own("POST", "/execute/async", &json!({"script": script, "args": []}));
        found.as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()).collect()
    }

    fn text(&self) -> String {
        self.run("return document.body.innerText").as_str().unwrap().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser itself, too, also when the test has failed.
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let head = format!("DELETE {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", self.session);
            if stream.write_all(head.as_bytes()).is_ok() {
                answer(&mut stream);
            }
        }
        drop(self.driver.kill());
        drop(self.driver.wait());
    }
}

/// Pages of everybody.
const PAGES: [&str; 9] = ["", "jobs", "past", "nodes", "partitions", "reservations", "accounts", "events", "health"];

/// Returns axe-core, which comes with a Python package beside the generator of clients. None: it is not there.
fn axe() -> Option<String> {
    let path = std::env::var_os("PATH")?;
    let beside = std::env::split_paths(&path).find(|dir| dir.join("openapi-python-client").exists())?;
    let versions = std::fs::read_dir(beside.join("../lib")).ok()?.flatten();
    let file = "site-packages/axe_playwright_python/axe.min.js";
    versions.into_iter().find_map(|version| std::fs::read_to_string(version.path().join(file)).ok())
}

#[test]
fn a_person_logs_in_sees_a_job_appear_and_cancels_it() {
    let Some(browser) = Browser::start(1280, 900, false) else { return };
    let c = Cluster::start("browser");
    let home = format!("http://127.0.0.1:{}", c.port);
    browser.open(&home);
    assert!(browser.run("return location.pathname") == "/login", "who is unknown is asked");
    let link = c.ok(&["web"]).trim().to_owned();
    browser.open(&link);
    assert_eq!(browser.run("return location.pathname"), "/");
    browser.open(&format!("{home}/jobs"));
    browser.run("window.marker = 7");
    let name = "from-<b>sbatch</b>";
    let id = c.ok(&["sbatch", "--parsable", "-J", name, "-o", "/dev/null", "--wrap", "sleep 300"]).trim().to_owned();
    Cluster::until("the job appears", || browser.text().contains(name));
    assert_eq!(browser.run("return window.marker"), 7, "the page was not loaded again");
    assert_eq!(browser.run("return document.querySelectorAll('main b').length"), 0, "a job's name is text");
    browser.click(&format!("main a[href='/job/{id}']"));
    Cluster::until("the job's page is there", || browser.run("return location.pathname") == format!("/job/{id}"));
    assert!(browser.text().contains("RUNNING"), "{}", browser.text());
    browser.click(&format!("form[action='/job/{id}/cancel'] button"));
    Cluster::until("the job is cancelled", || {
        c.ok(&["squeue", "-h", "-t", "all", "-j", &id, "-o", "%T"]).contains("CANCELLED")
    });
    Cluster::until("the page says so", || browser.text().contains("CANCELLED"));
    // The link was good for one browser, once.
    let used = c.send("GET", link.trim_start_matches(&home), &[], "");
    assert_ne!(used.status, 303, "{used:?}");
    // On a telephone nothing is wider than the screen.
    drop(browser);
    let Some(phone) = Browser::start(390, 844, true) else { return };
    phone.open(c.ok(&["web"]).trim());
    let mut barriers = Vec::new();
    let axe = axe().or_else(|| {
        eprintln!("skipped: no axe-core");
        None
    });
    let job = format!("job/{id}");
    for page in PAGES.into_iter().chain([&*job, "node/n1"]) {
        phone.open(&format!("{home}/{page}"));
        let wide = phone.run("return document.documentElement.scrollWidth - window.innerWidth");
        assert!(wide.as_i64().unwrap() <= 0, "/{page} is {wide} pixels too wide");
        let found = axe.iter().flat_map(|axe| phone.barriers(axe));
        barriers.extend(found.map(|text| format!("/{page} on a telephone, dark: {text}")));
    }
    drop(phone);
    let Some(desk) = Browser::start(1400, 900, false).filter(|_| axe.is_some()) else { return };
    desk.open(c.ok(&["web"]).trim());
    for page in PAGES.into_iter().chain([&*job, "node/n1"]) {
        desk.open(&format!("{home}/{page}"));
        let found = axe.iter().flat_map(|axe| desk.barriers(axe));
        barriers.extend(found.map(|text| format!("/{page}, light: {text}")));
    }
    assert!(barriers.is_empty(), "{barriers:#?}");
}

#[test]
fn a_failed_job_and_an_array_are_told_of_minutes_and_days_later() {
    let Some(browser) = Browser::start(1280, 900, false) else { return };
    let c = Cluster::start_with("past", "min_job_age_s = 2\n");
    let home = format!("http://127.0.0.1:{}", c.port);
    browser.open(c.ok(&["web"]).trim());
    let wrap = "echo starting $((6 * 7)); nosuchprogram --x";
    let failed = ["sbatch", "--parsable", "-J", "fitting", "-o", "fit-%j.out", "-e", "fit-%j.err", "--wrap", wrap];
    let failed = c.ok(&failed).trim().to_owned();
    std::fs::write(c.dir.join("sweep.sh"), "#!/bin/sh\ntest $SLURM_ARRAY_TASK_ID != 3\n").unwrap();
    let array = ["sbatch", "--parsable", "--array=0-4", "-J", "sweep", "-o", "/dev/null", "sweep.sh"];
    let array = c.ok(&array).trim().to_owned();
    let hold = c.ok(&["sbatch", "--parsable", "-H", "-J", "held", "--wrap", "true"]).trim().to_owned();
    let axe = axe();
    let seen = |path: &str, words: &[&str]| {
        let mut text = String::new();
        Cluster::until(path, || {
            browser.open(&format!("{home}/{path}"));
            text = browser.text();
            words.iter().all(|word| text.contains(word))
        });
        let wide = browser.run("return document.documentElement.scrollWidth - window.innerWidth");
        assert!(wide.as_i64().unwrap() <= 0, "/{path} is {wide} pixels too wide");
        let barriers: Vec<String> = axe.iter().flat_map(|axe| browser.barriers(axe)).collect();
        assert!(barriers.is_empty(), "/{path}: {barriers:#?}");
        text
    };
    let errors = "nosuchprogram: ";
    let job = ["fitting", "FAILED", "exit code 127", "did not find a program", "starting 42", errors, "Course"];
    let whole = ["5 of 5 tasks have ended, 1 of them failed", "--array=3 -J sweep", "sweep.sh", "exit code 1."];
    let (job_page, array_page) = (format!("job/{failed}"), format!("job/{array}"));
    seen(&job_page, &job);
    seen(&array_page, &whole);
    c.until_forgotten(&failed);
    c.until_forgotten(&array);
    let late = seen(&job_page, &job);
    assert!(late.contains("All fields") && !late.contains("DBIndex"), "{late}");
    seen(&array_page, &whole);
    browser.click(&format!("main a[href='/job/{array}_3']"));
    Cluster::until("the task's page is there", || browser.text().contains(&format!("Job {array}_3")));
    assert!(browser.text().contains("It ended with exit code 1."), "{}", browser.text());
    // The last task has the number of the array.
    seen(&format!("job/{array}_4"), &[&format!("Job {array}_4"), "COMPLETED"]);
    seen("", &["1 waiting", "2 failed since yesterday", "fitting", "did not find a program", "held"]);
    let text = seen("past?state=bad", &["fitting", "sweep", "1 to 2 of 2 jobs"]);
    assert!(!text.contains("COMPLETED 0:"), "{text}");
    browser.click("th[aria-sort=none] a[href*='sort=name']");
    Cluster::until("sorted by name", || {
        browser.run("return document.querySelector('th[aria-sort=ascending]') !== null") == true
    });
    assert!(seen("past?since=nonsense", &["There is no such period."]).contains("Past jobs"));
    c.ok(&["scancel", &hold]);
    c.ok(&["scontrol", "update", "nodename=n2", "state=down", "reason=fan"]);
    seen("", &["n2 is down: fan"]);
    assert_eq!(browser.run("return document.querySelector('header .mark').textContent"), "✕ 1");
}

#[test]
fn ends_and_waits_of_other_kinds_are_told_of_now_and_later() {
    let Some(browser) = Browser::start(400, 900, true) else { return };
    let c = Cluster::start_with("ends", "min_job_age_s = 2\n");
    let home = format!("http://127.0.0.1:{}", c.port);
    browser.open(c.ok(&["web"]).trim());
    let submit = |args: &[&str]| {
        let said = c.ok(&[&["sbatch", "--parsable", "-o", "/dev/null"], args].concat());
        said.trim().split(';').next().unwrap().to_owned()
    };
    let slow = submit(&["-J", "slow", "-t", "1", "--wrap", "sleep 60"]);
    let eat = "x=$(head -c 120000000 /dev/zero | tr '\\0' x); sleep 60; echo not reached ${#x}";
    let eats = submit(&["-J", "eats", "--mem=40M", "--wrap", eat]);
    let pair = "#!/bin/sh\n#SBATCH -J pair\n#SBATCH hetjob\n#SBATCH -J aside\nexit 4\n";
    std::fs::write(c.dir.join("pair.sh"), pair).unwrap();
    let pair = submit(&["pair.sh"]);
    let never = submit(&["-J", "never", "-d", &format!("afterok:{pair}"), "--wrap", "true"]);
    let axe = axe();
    let seen = |job: &str, words: &[&str]| {
        Cluster::until(&format!("{job}: {words:?}"), || {
            browser.open(&format!("{home}/job/{job}"));
            let text = browser.text();
            words.iter().all(|word| text.contains(word))
        });
        let wide = browser.run("return document.documentElement.scrollWidth - window.innerWidth");
        assert!(wide.as_i64().unwrap() <= 0, "/job/{job} is {wide} pixels too wide");
        let barriers: Vec<String> = axe.iter().flat_map(|axe| browser.barriers(axe)).collect();
        assert!(barriers.is_empty(), "/job/{job} on a telephone, dark: {barriers:#?}");
    };
    // The shortest time limit is a minute: that job is looked at last.
    let ended: [(&str, &[&str]); 4] = [
        (&eats, &["OUT_OF_MEMORY", "It used more memory than its limit", "more memory, such as --mem="]),
        (&pair, &["FAILED", "exit code 4", "Related jobs", &format!("{pair}+1")]),
        (&format!("{pair}+1"), &["aside", "Related jobs", &format!("{pair}+0")]),
        (&slow, &["TIMEOUT", "It reached its time limit", "It goes to /dev/null"]),
    ];
    for (job, words) in ended.into_iter().take(3) {
        seen(job, words);
    }
    seen(&never, &["can never start as it is", "Before it", &format!("afterok:{pair}")]);
    seen(&slow, ended[3].1);
    // A job is remembered as long as others wait for it.
    c.ok(&["scancel", &never]);
    for job in [&slow, &eats, &pair] {
        c.until_forgotten(job);
    }
    for (job, words) in ended {
        seen(job, words);
    }
}

#[test]
fn a_form_of_another_site_does_nothing() {
    let Some(browser) = Browser::start(1280, 900, false) else { return };
    let c = Cluster::start("csrf");
    browser.open(c.ok(&["web"]).trim());
    let id = c.ok(&["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 300"]).trim().to_owned();
    // A page of another origin (localhost is not 127.0.0.1) that sends the form by itself.
    let page = c.dir.join("evil.html");
    let form = format!(
        "<form id=f method=post action='http://127.0.0.1:{}/job/{id}/cancel'></form><script>f.submit()</script>",
        c.port
    );
    std::fs::write(&page, form).unwrap();
    browser.open(&format!("file://{}", page.display()));
    Cluster::until("the form was answered", || browser.run("return location.host") == format!("127.0.0.1:{}", c.port));
    assert!(!c.ok(&["squeue", "-h", "-t", "all", "-j", &id, "-o", "%T"]).contains("CANCELLED"));
}

#[test]
fn prometheus_scrapes() {
    if Command::new("prometheus").arg("--version").output().is_err() {
        eprintln!("skipped: there is no prometheus");
        return;
    }
    let c = Cluster::start("prometheus");
    let token = c.token(None);
    let own = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: squall\n  authorization: {{credentials: {token}}}\n  \
         static_configs: [{{targets: ['127.0.0.1:{}']}}]\n",
        c.port
    );
    let file = c.dir.join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let mut prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", c.dir.join("tsdb").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{own}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut last = String::new();
    Cluster::until("Prometheus has the number of CPUs", || {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", own)) else { return false };
        let ask = "GET /api/v1/query?query=slurm_cpus_total HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(ask.as_bytes()).unwrap();
        last = answer(&mut stream).body;
        last.contains("\"4\"")
    });
    prometheus.kill().unwrap();
    prometheus.wait().unwrap();
}
