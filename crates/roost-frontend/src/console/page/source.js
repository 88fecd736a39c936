// Asks the server for its state, again and again, and says what came of it.

const EVERY_MS = 2000;
const KEY = "roost-admin-key";

export class Source {
  constructor({ state, lost, locked }) {
    Object.assign(this, { state, lost, locked });
    this.session = "";
    this.paused = false;
    this.timer = null;
  }

  /// Asks now, and then every two seconds while the page is seen.
  start() {
    document.addEventListener("visibilitychange", () => document.hidden || this.ask());
    this.ask();
  }

  setKey(key) {
    sessionStorage.setItem(KEY, key);
    this.ask();
  }

  search(part) {
    this.session = part;
    this.ask();
  }

  pause(paused) {
    this.paused = paused;
    if (!paused) this.ask();
  }

  async ask() {
    clearTimeout(this.timer);
    const key = sessionStorage.getItem(KEY);
    const asked = (this.asked = (this.asked ?? 0) + 1);
    try {
      const reply = await fetch(`/console/state?session=${encodeURIComponent(this.session)}`, {
        headers: key ? { authorization: `Bearer ${key}` } : {},
        signal: AbortSignal.timeout(10000),
      });
      if (asked !== this.asked) return;
      if (reply.status === 401) return this.locked(key != null);
      if (!reply.ok) throw new Error(`status ${reply.status}`);
      this.state(await reply.json());
    } catch (error) {
      if (asked !== this.asked) return;
      this.lost(error);
    }
    if (!this.paused && !document.hidden) this.timer = setTimeout(() => this.ask(), EVERY_MS);
  }
}
