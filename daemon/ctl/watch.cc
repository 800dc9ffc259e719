#include "ctl/watch.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "ctl/commands.h"
#include "ctl/json.h"
#include "ctl/watch_screen.h"

namespace gyrostat::ctl {
namespace {

constexpr std::chrono::milliseconds kReconnectPause{1000};
constexpr std::string_view kKeys = "q or Ctrl-C ends; ";

// With the address where a person who types it elsewhere would reach another daemon.
std::string CommandOf(const Request& request) {
  return request.address == kDefaultAddress ? "gyrostatctl" : "gyrostatctl --address " + Escape(request.address);
}

// The curves begin with what the daemon remembers of the last steps. A daemon without history draws them from now on.
void TakePast(const Request& request, Control* control, WatchScreen* screen) {
  const auto run = control->GetRun(request.run);
  if (!run.ok()) return;  // Watch will say why.
  const int64_t last = run->view().summary().step();
  for (const std::string_view signal : kWatchedSignals) {
    v1::GetSeriesRequest wire;
    wire.set_run(request.run);
    wire.set_signal(std::string(signal));
    wire.set_from_step(std::max<int64_t>(0, last - static_cast<int64_t>(kWatchedPoints)));
    wire.set_to_step(last - 1);  // The first view has the last step itself.
    if (last > 0) (void)control->GetSeries(wire, [&](int64_t, double value) { screen->AddPast(signal, value); });
  }
}

// What is shown, and the page that shows it: views come on one thread, a window's new size on another.
class LivePage {
 public:
  LivePage(const Console& console, WatchScreen screen) : console_(console), screen_(std::move(screen)) {}

  // False once the terminal takes nothing more.
  bool Show(const v1::RunView& view) {
    {
      base::MutexLock lock(mutex_);
      screen_.Add(view);
      trouble_.clear();
    }
    return Redraw();
  }

  bool ShowTrouble(std::string trouble) {
    {
      base::MutexLock lock(mutex_);
      trouble_ = std::move(trouble);
    }
    return Redraw();
  }

 private:
  // The terminal is taken when there is something to show: an error before that is printed as any other.
  bool Redraw() {
    if (stage_ == nullptr) stage_ = console_.stage([this](const Size& size) { return Picture(size); });
    return stage_->Redraw();
  }

  std::string Picture(const Size& size) GYROSTAT_EXCLUDES(mutex_) {
    Style style = console_.style;
    // Nothing in the last column: clearing the rest of a line would eat it.
    style.columns = std::max<size_t>(size.columns, 2) - 1;
    base::MutexLock lock(mutex_);
    return screen_.Render(style, size.rows, console_.clock.UnixMs(), trouble_, kKeys);
  }

  const Console& console_;
  base::Mutex mutex_;
  WatchScreen screen_ GYROSTAT_GUARDED_BY(mutex_);
  std::string trouble_ GYROSTAT_GUARDED_BY(mutex_);
  std::unique_ptr<Stage> stage_;  // Last: it calls Picture until it is gone.
};

int WatchLive(const Request& request, const v1::WatchRequest& wire, Control* control, const Console& console) {
  WatchScreen screen(CommandOf(request));
  TakePast(request, control, &screen);
  absl::Status status;
  {
    LivePage page(console, std::move(screen));
    uint64_t updates = 0;
    const auto on_view = [&](const v1::RunView& view) {
      ++updates;
      return page.Show(view) && (request.count == 0 || updates < request.count);
    };
    status = control->Watch(wire, on_view);
    // A daemon that restarts comes back with the run; a person who watches should not have to type again.
    while (updates > 0 && absl::IsUnavailable(status)) {
      if (!page.ShowTrouble("No daemon answers at " + request.address + "; trying again. q or Ctrl-C ends.")) break;
      if (control->WaitForConnection(kReconnectPause)) status = control->Watch(wire, on_view);
    }
  }
  return status.ok() ? kDone : Complain(status, request.address, console);
}

// One page, printed; the last line of a window is the prompt's.
std::string OnePage(const WatchScreen& screen, const Console& console) {
  const Size size = console.size();
  Style style = console.style;
  style.columns = size.columns;
  return screen.Render(style, std::max<size_t>(size.rows, 2) - 1, console.clock.UnixMs());
}

int WatchLines(const Request& request, const v1::WatchRequest& wire, Control* control, const Console& console) {
  WatchScreen screen(CommandOf(request));
  if (request.once && !request.json) TakePast(request, control, &screen);
  uint64_t updates = 0;
  const absl::Status status = control->Watch(wire, [&](const v1::RunView& view) {
    screen.Add(view);
    ++updates;
    if (request.json) console.out << Json(view) << "\n";
    else if (request.once) console.out << OnePage(screen, console);
    else console.out << screen.Line(console.clock.UnixMs()) << "\n";
    console.out << std::flush;
    return console.out.good() && !request.once && (request.count == 0 || updates < request.count);
  });
  return status.ok() ? kDone : Complain(status, request.address, console);
}

}  // namespace

int Watch(const Request& request, Control* control, const Console& console) {
  const bool live = console.terminal && console.stage && !request.json && !request.once;
  v1::WatchRequest wire;
  wire.set_run(request.run);
  wire.set_interval_ms(request.interval_ms);
  wire.set_heads(live || (request.once && !request.json));
  return live ? WatchLive(request, wire, control, console) : WatchLines(request, wire, control, console);
}

}  // namespace gyrostat::ctl
