"""fedMAN's code (Yashwanth et al.), which is made of FedDyn's and FedDC's."""

from trainers.protocols.protocol import Protocol, lines

_MODEL = "code/example_cifar_10.py:56, required"
_SLIP = lines(
    man_layers=(("0", "4", "13", "15"), "code/utils_models.py:234, 243: the first dense layer's overwrites conv3's"),
    man_variance=(("15",), "code/utils_models.py:250, 258: the last hidden layer's variance over the batch"),
)
"""MAN of its network for Tiny-ImageNet in code/; that in man_code_sam/, of FedSAM and FedASAM, has the five layers."""

FEDMAN = Protocol(
    "fedman",
    "https://github.com/vcl-iisc/fedMAN",
    "d38a10e",
    lines(
        data=("cifar100", "code/example_cifar_10.py:57, required; the paper's"),
        partition=("dirichlet:0.6", "code/example_cifar_10.py:68-69"),
        clients=(100, "code/example_cifar_10.py:60"),
        per_round=(10, "code/example_cifar_10.py:75"),
        sampling=("bernoulli", "code/utils_methods.py:67-72"),
        rounds=(500, "code/example_cifar_10.py:63"),
        local_epochs=(5, "code/example_cifar_10.py:59"),
        batch_size=(50, "code/example_cifar_10.py:58"),
        weight_decay=(1e-3, "code/example_cifar_10.py:103"),
        lr=(0.1, "code/example_cifar_10.py:77"),
        lr_decay=(0.998, "code/example_cifar_10.py:76"),
        clip=(10.0, "code/utils_general.py:470"),
        clip_at=("direction", "code/utils_general.py:470"),
        clip_eps=(1e-6, "code/utils_general.py:470"),
        evaluated_model=("all-clients-mean", "code/utils_methods.py:92, 408"),
        eval_every=(1, "code/utils_methods.py:95"),
        seed=(23217, "code/example_cifar_10.py:10-12; 43217 and 83217 are the others"),
    ),
    {
        "fedavg": lines(weighting=("samples", "code/utils_methods.py:91, 703")),
        "fedprox": lines(mu=(1e-4, "code/example_cifar_10.py:71"), weighting=("samples", "code/utils_methods.py:561")),
        "feddyn": lines(
            alpha=(0.01, "code/example_cifar_10.py:74"),
            weighting=("uniform", "code/utils_methods.py:404"),
            sizes=("relative", "code/utils_methods.py:388"),
            clip_at=("linear", "code/utils_general.py:341-346"),
        ),
        "feddc": lines(
            alpha=(0.01, "code/example_cifar_10.py:74"),
            server_correction=("all", "code/utils_methods_FedDC.py:141-148"),
            sizes=("relative", "code/utils_methods_FedDC.py:114-115"),
            weighting=("uniform", "code/utils_methods_FedDC.py:141"),
            dual_steps=("mean", "code/example_cifar_10.py:216; code/utils_methods_FedDC.py:131"),
            dual_lr=("first", "code/utils_methods_FedDC.py:131"),
        ),
        "fedspeed": lines(
            rho=(0.01, "code/example_cifar_10.py:89"),
            lam=(100.0, "code/example_cifar_10.py:74, 225"),
            variant=("uncleared", "code/utils_optimizer.py:22-66; code/utils_general.py:776-782"),
            server_correction=("all", "code/utils_methods.py:842-854"),
            weighting=("uniform", "code/utils_methods.py:842-854"),
            clip_at=("linear", "code/utils_general.py:725, 755-761"),
            norm_eps=(1e-7, "code/utils_optimizer.py:26"),
        ),
        "fedsam": lines(
            rho=(0.05, "man_code_sam/utils_general.py:200, a comment; line 208 has --search_param"),
            weighting=("samples", "man_code_sam/utils_methods.py:124"),
        ),
        "fedasam": lines(
            rho=(0.5, "man_code_sam/utils_general.py:274; 0.1 on iid Tiny-ImageNet and with MAN on iid data"),
            eta=(0.2, "man_code_sam/utils_general.py:274"),
            weighting=("samples", "man_code_sam/utils_methods.py:124"),
        ),
    },
    (
        (
            {"data": "cifar10"},
            lines(
                normalise=("0.491,0.482,0.447/0.247,0.243,0.262", "code/utils_dataset.py:34"),
                model=("lenet_fed", _MODEL),
                augment=("flip-crop-half", "code/utils_dataset.py:824-832"),
            ),
        ),
        (
            {"data": "cifar100"},
            lines(
                normalise=("0.5071,0.4867,0.4408/0.2675,0.2565,0.2761", "code/utils_dataset.py:120-121"),
                model=("lenet_fed", _MODEL),
                augment=("flip-crop-half", "code/utils_dataset.py:824-832"),
            ),
        ),
        (
            {"data": "tiny_imagenet"},
            lines(
                normalise=("imagenet", "code/utils_dataset.py:193-194"),
                model=("convnet_tiny", _MODEL),
                augment=("flip-crop-half", "code/utils_dataset.py:824-836"),
            ),
        ),
        ({"man": ""}, lines(man_variant=("half", "code/utils_general.py:342, 468"))),
        *(
            ({"man": "", "model": "convnet_tiny", "algorithm": name}, _SLIP)
            for name in ("fedavg", "feddyn", "feddc", "fedspeed")
        ),
    ),
    (
        "ζ: --mu_mean is 0.01 unless given; the paper's are 0.15 (CIFAR-100) and 0.1 (Tiny-ImageNet)",
        "FedSpeed's ascent has the clipped direction of the step before; ours that before clipping",
        "FedSpeed's α is divided by the client's relative size, which matters where sizes differ",
        "the clients of a round are NumPy's draws with the seed of the round; ours are others of the same law",
    ),
)
