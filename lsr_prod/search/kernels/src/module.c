/* The extension. */
#include "module.h"

#ifndef SOURCES
#define SOURCES "" /* digest of the sources; the build sets it */
#endif

static PyMethodDef methods[] = {
    {"Postings", py_postings, METH_VARARGS, NULL},
    {"match", py_match, METH_VARARGS, NULL},
    {"match_batch", py_match_batch, METH_VARARGS, NULL},
    {"score", py_score, METH_VARARGS, NULL},
    {"workspace_bytes", py_workspace_bytes, METH_NOARGS, NULL},
    {"count_runs", py_count_runs, METH_VARARGS, NULL},
    {"fill_postings", py_fill_postings, METH_VARARGS, NULL},
    {"measure_compressed", py_measure_compressed, METH_VARARGS, NULL},
    {"compress_runs", py_compress_runs, METH_VARARGS, NULL},
    {"bisect_sets", py_bisect_sets, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int add_constants(PyObject *module) { return PyModule_AddStringConstant(module, "SOURCES", SOURCES); }

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_constants}, {0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "native", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_native(void) { return PyModuleDef_Init(&module); }
