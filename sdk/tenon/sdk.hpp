/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/sdk.hpp: plugins in C++17. <tenon/sdk.h> includes it wherever it is compiled as C++ with exceptions, but for
 * CUDA; nothing has to be linked.
 *
 *   .update = TN_CALL(mine_update)         an entry that lets no exception out; also TN_CALL(+lambda), of one without
 *                                          captures. The tables that macros of the SDK make have it already
 *   throw tn::error(TN_E_DATA, "%s: ...", name)     any status of the contract, with its words
 *   tn::hyper<mine>(piece).lr              a call's hyper-parameters
 *
 * What is thrown becomes the error of the call: std::bad_alloc TN_E_MEMORY, any other exception TN_E_INTERNAL with its
 * what(). A call that returns nothing hands it to the host through <tenon/failure.h>, and the run ends with it; one
 * that returns a number and can hand it to nobody returns NaN. Entries that can do neither must be noexcept, and
 * TN_CALL says so when they are compiled.
 */
#ifndef TENON_SDK_HPP
#define TENON_SDK_HPP

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <type_traits>

#include <tenon/failure.h>
#include <tenon/layer.h>
#include <tenon/loss.h>
#include <tenon/matrix.h>
#include <tenon/minimizer.h>
#include <tenon/optimizer.h>
#include <tenon/precision.h>
#include <tenon/sdk.h>
#include <tenon/tangent.h>

/* Two plugins may be built with two versions of this. */
#pragma GCC visibility push(hidden)

namespace tn
{

class error : public std::exception
{
  public:
    /* code: TN_E_*. */
    __attribute__((format(printf, 3, 4))) error(int32_t code, const char *format, ...) : code_(code)
    {
        va_list args;
        va_start(args, format);
        std::vsnprintf(text_, sizeof text_, format, args);
        va_end(args);
    }
    int32_t code() const noexcept { return code_; }
    const char *what() const noexcept override { return text_; }

  private:
    int32_t code_;
    char text_[768];
};

/* The hyper-parameters of a call. */
template <class Hyper, class Call> const Hyper &hyper(const Call *call) noexcept
{
    return *static_cast<const Hyper *>(call->hyper);
}

namespace detail
{

/* ---- where an entry finds the host's services ---- */

inline const tn_services *services(const tn_context *context) noexcept { return context ? context->services : nullptr; }
inline const tn_services *services(const tn_piece *piece) noexcept { return services(piece->context); }
inline const tn_services *services(const tn_clock *clock) noexcept
{
    return clock && clock->struct_size >= sizeof *clock ? clock->services : nullptr; /* older hosts lend none */
}
inline const tn_services *services(const tn_fold *fold) noexcept { return services(fold->clock); }
inline const tn_services *services(const tn_layer_call *call) noexcept { return services(call->context); }
inline const tn_services *services(const tn_tangent_call *along) noexcept { return services(along->call); }
inline const tn_services *services(const tn_loss_call *call) noexcept { return services(call->context); }
inline const tn_services *services(const tn_codec_call *call) noexcept { return services(call->context); }
inline const tn_services *services(const tn_matrix_call *call) noexcept { return services(call->context); }
inline const tn_services *services(const tn_tap_call *call) noexcept { return services(call->context); }
inline const tn_services *services(const tn_advance *call) noexcept { return services(call->context); }

template <class T, class = void> struct lends : std::false_type {
};
template <class T> struct lends<T, std::void_t<decltype(services(std::declval<T>()))>> : std::true_type {
};
template <> struct lends<tn_error *> : std::false_type {
};
template <> struct lends<std::nullptr_t> : std::false_type {
};

inline const tn_services *first_services() noexcept { return nullptr; }
template <class T, class... More> const tn_services *first_services(T argument, More... more) noexcept
{
    if constexpr (lends<T>::value)
        if (const tn_services *found = services(argument))
            return found;
    return first_services(more...);
}

inline tn_error *last_error() noexcept { return nullptr; }
template <class T, class... More> tn_error *last_error(T argument, More... more) noexcept
{
    if constexpr (sizeof...(More) == 0 && std::is_same_v<T, tn_error *>)
        return argument;
    else
        return last_error(more...);
}

template <class... A> constexpr bool takes_error() { return (std::is_same_v<A, tn_error *> || ...); }

/* ---- what was thrown ---- */

/* "... [with auto F = mine_update; ...]": the function's name, into `ret`. */
inline void name_of(const char *pretty, char *ret, std::size_t size) noexcept
{
    const char *at = std::strstr(pretty, "F = ");
    at = at ? at + 4 + std::strspn(at + 4, "&( ") : "an entry";
    if (*at == '<' || std::strncmp(at, "anonymous", 9) == 0)
        at = "a lambda";
    std::snprintf(ret, size, "%.*s", static_cast<int>(std::strcspn(at, ";,])")), at);
}

/* In a handler: fills `ret` and returns the status. */
inline int32_t describe(const char *pretty, tn_error *ret) noexcept
{
    char name[128];
    name_of(pretty, name, sizeof name);
    try {
        throw;
    } catch (const error &e) {
        return tn_fail(ret, e.code() > TN_OK ? e.code() : TN_E_INTERNAL, "%s", e.what());
    } catch (const std::bad_alloc &) {
        return tn_fail(ret, TN_E_MEMORY, "%s: out of memory", name);
    } catch (const std::exception &e) {
        return tn_fail(ret, TN_E_INTERNAL, "%s: threw '%.700s'", name, e.what());
    } catch (...) {
        return tn_fail(ret, TN_E_INTERNAL, "%s: threw what is no std::exception", name);
    }
}

/* To the host that lends `services`; nobody else could be told. */
inline void hand_over(const tn_services *services, const tn_error &what) noexcept
{
    const void *table = services && services->interface ? services->interface(services->host, TN_FAILURE) : nullptr;
    if (!table)
        std::terminate();
    static_cast<const tn_failure *>(table)->fail(services->host, what.code, what.msg);
}

/* ---- the border ---- */

/* What an entry returns that has thrown; a status or, of entries that return a count, minus a status. */
template <class R> R result(int32_t status) noexcept
{
    (void)status;
    if constexpr (std::is_floating_point_v<R>)
        return std::numeric_limits<R>::quiet_NaN();
    else if constexpr (std::is_same_v<R, int32_t>)
        return status;
    else if constexpr (std::is_same_v<R, int64_t>)
        return -static_cast<int64_t>(status);
    else
        return R();
}

template <auto F, class T> struct border;
template <auto F, class R, class... A> struct border<F, R (*)(A...)> {
    static R call(A... arguments) noexcept
    {
        constexpr bool told = takes_error<A...>() || (lends<A>::value || ...);
        static_assert(told || std::is_floating_point_v<R>,
                      "this entry can tell nobody of an exception: make the function noexcept, without TN_CALL");
        try {
            return F(arguments...);
        } catch (...) {
            tn_error what;
            int32_t status = describe(__PRETTY_FUNCTION__, &what);
            if constexpr (takes_error<A...>()) {
                if (tn_error *err = last_error(arguments...))
                    *err = what;
            } else if constexpr (told) {
                hand_over(first_services(arguments...), what);
            }
            return result<R>(status);
        }
    }
};
/* One that is noexcept needs no handler. */
template <auto F, class R, class... A> struct border<F, R (*)(A...) noexcept> {
    static R call(A... arguments) noexcept { return F(arguments...); }
};

} // namespace detail
} // namespace tn

#pragma GCC visibility pop

#undef TN_CALL
#define TN_CALL(function) (&::tn::detail::border<(function), std::decay_t<decltype(function)>>::call)

#endif
