// A small transformer trained with libtorch, and gyrostat in its loop: attention maxima out, QK-Clip orders in, and the
// learning rate as orders leave it.
//
//   gyrostat-example-torch [STEPS [TEXT_FILE]]   needs no daemon; with one, set GYROSTAT_ADDRESS=host:port
//
// The learning rate is far too high on purpose, so that the attention logits run away where nobody clips them.
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <gyrostat/gyrostat.hpp>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

namespace {

constexpr int64_t kLayers = 2, kHeads = 4, kHeadDim = 8, kWidth = kHeads * kHeadDim, kTokens = 32, kBatch = 8;
constexpr int64_t kBytes = 256;  // The vocabulary.
constexpr double kPeakRate = 0.04;
constexpr int64_t kWarmupSteps = 50, kFinalSteps = 50;

// Pre-norm causal attention and an MLP. `maxima` holds the largest softmax input of each head, of the last forward.
struct Block : torch::nn::Module {
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear q{nullptr}, k{nullptr}, v{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
  torch::Tensor mask, maxima;

  Block() {
    norm1 = register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    norm2 = register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    q = register_module("q", torch::nn::Linear(kWidth, kWidth));
    k = register_module("k", torch::nn::Linear(kWidth, kWidth));
    v = register_module("v", torch::nn::Linear(kWidth, kWidth));
    out = register_module("out", torch::nn::Linear(kWidth, kWidth));
    up = register_module("up", torch::nn::Linear(kWidth, 4 * kWidth));
    down = register_module("down", torch::nn::Linear(4 * kWidth, kWidth));
    mask = torch::full({kTokens, kTokens}, -std::numeric_limits<float>::infinity()).triu(1);
  }

  torch::Tensor forward(torch::Tensor x) {
    const torch::Tensor normed = norm1(x);
    const auto heads = [](const torch::Tensor& rows) {
      return rows.view({-1, kTokens, kHeads, kHeadDim}).transpose(1, 2);
    };
    const double scale = 1.0 / std::sqrt(static_cast<double>(kHeadDim));
    const torch::Tensor scores = heads(q(normed)).matmul(heads(k(normed)).transpose(2, 3)) * scale + mask;
    maxima = scores.detach().amax({0, 2, 3});
    const torch::Tensor mixed = scores.softmax(-1).matmul(heads(v(normed)));
    x = x + out(mixed.transpose(1, 2).reshape({-1, kTokens, kWidth}));
    return x + down(torch::relu(up(norm2(x))));
  }
};

// int64 bytes [batch, kTokens] to logits [batch, kTokens, kBytes].
struct Model : torch::nn::Module {
  torch::nn::Embedding bytes{nullptr}, places{nullptr};
  std::vector<std::shared_ptr<Block>> blocks;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};

  Model() {
    bytes = register_module("bytes", torch::nn::Embedding(kBytes, kWidth));
    places = register_module("places", torch::nn::Embedding(kTokens, kWidth));
    for (int64_t l = 0; l < kLayers; ++l)
      blocks.push_back(register_module("block" + std::to_string(l), std::make_shared<Block>()));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    head = register_module("head", torch::nn::Linear(kWidth, kBytes));
  }

  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor x = bytes(input) + places->weight;
    for (const auto& block : blocks) x = block->forward(x);
    return head(norm(x));
  }

  // [layers x heads], layer-major, as gyrostat wants them.
  std::vector<float> Maxima() const {
    std::vector<float> values;
    for (const auto& block : blocks) {
      const float* row = block->maxima.data_ptr<float>();
      values.insert(values.end(), row, row + kHeads);
    }
    return values;
  }
};

void ScaleHead(torch::nn::Linear& projection, const gyro_head_factor& by) {
  const int64_t first = static_cast<int64_t>(by.head) * kHeadDim;
  projection->weight.narrow(0, first, kHeadDim).mul_(by.factor);
  projection->bias.narrow(0, first, kHeadDim).mul_(by.factor);
}

// Rows of W_q and W_k, and of their biases; the optimizer's moments stay as they are. An order of the rate needs
// nothing here: LearningRate does what it says from the next step on.
gyro_outcome Apply(Model& model, const gyro_order& order) {
  const torch::NoGradGuard no_grad;
  for (uint32_t i = 0; i < order.q_count; ++i) ScaleHead(model.blocks[order.q[i].layer]->q, order.q[i]);
  for (uint32_t i = 0; i < order.k_count; ++i) ScaleHead(model.blocks[order.k[i].layer]->k, order.k[i]);
  return GYRO_APPLIED;
}

// The whole file, or what any Debian machine has. Empty: it cannot be read, or is too short to train on.
torch::Tensor ReadText(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (static_cast<int64_t>(text.size()) < 100 * kTokens) return {};
  return torch::from_blob(text.data(), {static_cast<int64_t>(text.size())}, torch::kUInt8).to(torch::kLong);
}

gyrostat::Options ClientOptions() {
  gyrostat::Options options;  // Address and run come from the environment.
  options.framework = "libtorch " TORCH_VERSION;
  options.allow = "qk_clip,lr_scale";  // Without this line nothing may be changed.
  options.logit_kind = GYRO_LOGIT_EXACT;
  options.logit_with_bias = 1;
  options.model.layers = kLayers;
  options.model.hidden_size = kWidth;
  options.model.heads = options.model.kv_heads = kHeads;
  options.model.head_dim = kHeadDim;
  options.model.attention = "mha";
  options.model.qk_norm = "none";
  options.model.norm_kind = "layernorm";
  options.model.norm_placement = "pre";
  options.model.optimizer = "adamw";
  options.model.master_fp32 = 1;
  options.model.schedule_kind = "const";
  options.model.schedule_peak = kPeakRate;
  options.model.warmup_steps = kWarmupSteps;
  return options;
}

struct Seen {
  float peak = 0;          // The largest logit of any step.
  double final_loss = 0;   // Mean of the last kFinalSteps steps; every batch is fresh.
};

// One optimizer step, at the rate that gyrostat leaves of the schedule's, and its boundary.
double TrainStep(Model& model, torch::optim::AdamW& optimizer, const torch::Tensor& text, gyrostat::Client& client,
                 int64_t step) {
  const torch::Tensor starts = torch::randint(text.size(0) - kTokens, {kBatch, 1}, torch::kLong);
  const torch::Tensor window = text.index({starts + torch::arange(kTokens + 1)});
  const torch::Tensor logits = model.forward(window.narrow(1, 0, kTokens));
  const torch::Tensor loss = torch::nn::functional::cross_entropy(
      logits.reshape({-1, kBytes}), window.narrow(1, 1, kTokens).reshape({-1}));
  optimizer.zero_grad();
  loss.backward();

  const double rate = client.LearningRate(kPeakRate * std::min(1.0, static_cast<double>(step) / kWarmupSteps));
  static_cast<torch::optim::AdamWOptions&>(optimizer.param_groups()[0].options()).lr(rate);
  optimizer.step();

  const double value = loss.item<double>();
  client.Step(step, [&](gyrostat::Report& report) {
    report.Scalar("loss", value);
    report.Scalar("learning_rate", rate);
    report.AttnLogitMax(model.Maxima());
  });
  client.ApplyOrders([&](const gyro_order& order) { return Apply(model, order); });
  return value;
}

Seen Train(const torch::Tensor& text, int64_t steps, gyrostat::Client& client) {
  Model model;
  torch::optim::AdamW optimizer(model.parameters(),
                                torch::optim::AdamWOptions(kPeakRate).betas({0.9, 0.98}).weight_decay(0.0));
  Seen seen;
  for (int64_t step = 1; step <= steps; ++step) {
    const double loss = TrainStep(model, optimizer, text, client, step);
    const std::vector<float> maxima = model.Maxima();
    seen.peak = std::max(seen.peak, *std::max_element(maxima.begin(), maxima.end()));
    const int64_t last = std::min(steps, kFinalSteps);
    if (step > steps - last) seen.final_loss += loss / static_cast<double>(last);
  }
  return seen;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 400;
  const char* const path = argc > 2 ? argv[2] : "/usr/share/common-licenses/GPL-3";
  const torch::Tensor text = ReadText(path);
  if (steps < 1 || !text.defined()) {
    std::fprintf(stderr, "steps is %ld, wanted at least 1; %s must be a text of %ld bytes or more\n",
                 static_cast<long>(steps), path, static_cast<long>(100 * kTokens));
    return 2;
  }
  torch::set_num_threads(1);
  torch::manual_seed(0);
  gyrostat::Client client(ClientOptions());
  std::printf("gyrostat: %s\n", gyrostat::ToString(client.status()).c_str());
  const Seen seen = Train(text, steps, client);
  const gyro_client_stats stats = client.Stats();
  client.Close(1000);
  std::printf("steps=%ld peak=%.1f final_loss=%.3f reports=%llu orders_applied=%llu\n", static_cast<long>(steps),
              seen.peak, seen.final_loss, static_cast<unsigned long long>(stats.reports_total),
              static_cast<unsigned long long>(stats.orders_applied));
}
