// Work that the calling thread shares with XLA's when it takes long.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include <xla/ffi/api/c_api.h>

namespace ipujax {

// The numbers from 0 on, which threads take in parts, lower ones first.
class SharedWork {
public:
  struct Part {
    std::int64_t first, last;
  };
  using Function = void (*)(SharedWork &work, void *data);

  // Calls `function` with `data`, here and on other threads; it takes parts until there are none.
  // Returns when all calls have returned: a thread that comes later does nothing, so that nobody
  // waits for one that has not begun.
  static void run(XLA_FFI_CallFrame *frame, std::int64_t count, std::int64_t step,
                  Function function, void *data) {
    const auto work = std::make_shared<SharedWork>(frame, count, step, function, data);
    work->self = work;
    function(*work, data);
    std::unique_lock<std::mutex> lock(work->mutex);
    work->isOver = true;
    work->returned.wait(lock, [&] { return work->helpers == 0; });
  }

  SharedWork(XLA_FFI_CallFrame *frame, std::int64_t count, std::int64_t step, Function function,
             void *data)
      : frame(frame), count(count), step(step), function(function), data(data) {}

  // Returns the next part, which is empty when nothing is left.
  Part take() {
    const std::int64_t first = next.fetch_add(step);
    if (first == step && first < count) {
      const std::chrono::duration<double> ofFirstPart = Clock::now() - begin;
      if (ofFirstPart.count() * (count / step) > WORTH_SHARING)
        askForHelp();
    }
    return {first, first + step < count ? first + step : count};
  }
  void stop() { next = count; }

private:
  using Clock = std::chrono::steady_clock;
  static constexpr double WORTH_SHARING = 50e-6; // seconds: much more than waking a thread takes

  XLA_FFI_CallFrame *const frame;
  const std::int64_t count, step;
  const Function function;
  void *const data;
  const Clock::time_point begin = Clock::now();
  std::weak_ptr<SharedWork> self;
  std::atomic<std::int64_t> next{0};
  std::mutex mutex;
  std::condition_variable returned;
  int helpers = 0;
  bool isOver = false;

  void askForHelp() {
    std::int64_t threads = 0;
    XLA_FFI_ThreadPool_NumThreads_Args number{};
    number.struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE;
    number.ctx = frame->ctx, number.num_threads = &threads;
    if (isError(frame->api->XLA_FFI_ThreadPool_NumThreads(&number)))
      return;
    for (std::int64_t i = 1; i < threads; ++i) {
      auto *owner = new std::shared_ptr<SharedWork>(self.lock());
      XLA_FFI_ThreadPool_Schedule_Args task{};
      task.struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE;
      task.ctx = frame->ctx, task.task = help, task.data = owner;
      if (isError(frame->api->XLA_FFI_ThreadPool_Schedule(&task))) {
        delete owner;
        return;
      }
    }
  }

  static void help(void *given) {
    const std::unique_ptr<std::shared_ptr<SharedWork>> owner(
        static_cast<std::shared_ptr<SharedWork> *>(given));
    SharedWork &work = **owner;
    {
      std::lock_guard<std::mutex> lock(work.mutex);
      if (work.isOver)
        return;
      ++work.helpers;
    }
    work.function(work, work.data);
    std::lock_guard<std::mutex> lock(work.mutex);
    if (--work.helpers == 0)
      work.returned.notify_all();
  }

  bool isError(XLA_FFI_Error *error) {
    if (error == nullptr)
      return false;
    XLA_FFI_Error_Destroy_Args args{};
    args.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
    args.error = error;
    frame->api->XLA_FFI_Error_Destroy(&args);
    return true;
  }
};

} // namespace ipujax
